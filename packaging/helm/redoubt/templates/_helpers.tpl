{{/* Name of every object of a release, at most 52 characters: the StatefulSet adds a hash to it in a label. */}}
{{- define "redoubt.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "redoubt.selector" -}}
app.kubernetes.io/name: redoubt
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "redoubt.labels" -}}
{{ include "redoubt.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
{{- end -}}

{{/* The chart has no answer to a second replica: a volume lives on one node. */}}
{{- define "redoubt.claim" -}}
accessModes: [ReadWriteOnce]
{{- if .className }}
storageClassName: {{ .className | quote }}
{{- end }}
resources:
  requests:
    storage: {{ .size }}
{{- end -}}
