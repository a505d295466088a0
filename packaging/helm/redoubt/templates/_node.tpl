{{/* The node's container: a sidecar of the server, or the only container. */}}
{{- define "redoubt.node" -}}
- name: node
  image: {{ .Values.node.image | quote }}
  {{- if .Values.server.enabled }}
  # A sidecar: it starts before the server and stops after it, because a server that stops still writes to the node.
  restartPolicy: Always
  {{- end }}
  args:
    - node
    - --data=/var/lib/redoubt/node
    {{- if .Values.node.tlsSecret }}
    - --listen=0.0.0.0:7070
    - --tls=/etc/redoubt/tls/node
    {{- else }}
    - --listen=127.0.0.1:7070
    {{- end }}
    - --memory={{ .Values.node.redoMemory }}
    - --status-listen=0.0.0.0:7071
    - --status-allow-remote
    - --log-format=json
    {{- range .Values.node.options }}
    - {{ . | quote }}
    {{- end }}
  ports:
    - name: volumes
      containerPort: 7070
    - name: metrics
      containerPort: 7071
  # A volume that opens slowly must not restart the node, so only readiness asks for open volumes.
  startupProbe:
    httpGet: { path: /healthz, port: metrics }
    periodSeconds: 2
    failureThreshold: 60
  readinessProbe:
    httpGet: { path: /readyz, port: metrics }
    periodSeconds: 10
  livenessProbe:
    httpGet: { path: /healthz, port: metrics }
    periodSeconds: 30
    timeoutSeconds: 10
    failureThreshold: 4
  securityContext:
    {{- include "redoubt.security" . | nindent 4 }}
  resources:
    {{- toYaml .Values.node.resources | nindent 4 }}
  volumeMounts:
    - name: node
      mountPath: /var/lib/redoubt
    {{- if .Values.node.tlsSecret }}
    - name: tls
      mountPath: /etc/redoubt/tls/node
      subPath: node
      readOnly: true
    {{- end }}
{{- end -}}

{{/* What the server's image has to know of the volume, for the container that makes it and the one that uses it. */}}
{{- define "redoubt.volume" -}}
- name: REDOUBT_VOLUME
  value: {{ .Values.server.volume | quote }}
{{- if .Values.server.rootPasswordSecret }}
- name: MARIADB_ROOT_PASSWORD_FILE
  value: /run/secrets/root/password
{{- end }}
{{- end -}}

{{- define "redoubt.volumeMounts" -}}
{{- if .Values.server.rootPasswordSecret }}
- name: root-password
  mountPath: /run/secrets/root
  readOnly: true
{{- end }}
{{- end -}}

{{- define "redoubt.security" -}}
allowPrivilegeEscalation: false
runAsNonRoot: true
runAsUser: 999
runAsGroup: 999
capabilities: { drop: [ALL] }
{{- end -}}
