package Prose::Text;

# Extracts prose from source files: Markdown, Rust comments and messages, comments of shell, TOML, YAML and make.
#
# The result is a list of units. A unit is a text that ends on its own (a paragraph, a heading, a cell of a table, a
# message): { kind, text, map }. `map` holds pairs [offset, line], so that an offset in `text` finds its line. Inline code
# is replaced by a mark between \x01 characters, so that rules see it as one word; `restore` brings it back.

use strict;
use warnings;

# Macros whose strings are log lines or messages for a person.
my $LOG_MACROS = qr/(?:info|warn|error|debug|trace|eprintln|eprint|bail|anyhow|say|complain)/;
my $NO_PROSE   = qr/^\s*(?:SELECT|INSERT|CREATE|UPDATE|DELETE|ALTER|DROP|SET|SHOW|WITH)\b|[<>]{1}\/?[a-z]+>|\{\{|;\s*\}/;
my $BALANCED   = qr/(\((?:[^()]++|(?-1))*+\))/;

sub kind_of_file {
    my ($path, $head) = @_;
    return 'markdown' if $path =~ /\.md$/;
    return 'rust'     if $path =~ /\.rs$/;
    return 'yaml'     if $path =~ /\.ya?ml$/;
    return 'json'     if $path =~ m{packaging/grafana/.*\.json$};
    return 'hash'     if $path =~ /\.(?:sh|toml|pm|pl|t)$/ || $path =~ m{(?:^|/)(?:Makefile|Dockerfile|allowed-skips)$};
    return 'hash'     if $path !~ m{\.[^/]*$} && ($head // '') =~ /^#!.*\b(?:bash|sh|perl)\b/;
    return undef;
}

# Returns (units, lines of prose).
sub extract {
    my ($path, $source) = @_;
    my $kind = kind_of_file($path, substr($source, 0, 80)) or return ([], 0);
    my $result = { units => [], lines => {} };
    if    ($kind eq 'markdown') { markdown($result, 'markdown', numbered($source, 1)) }
    elsif ($kind eq 'rust')     { rust($result, $path, $source) }
    elsif ($kind eq 'json')     { json($result, $source) }
    else                        { hash_comments($result, $source, $kind) }
    return ($result->{units}, scalar keys %{ $result->{lines} });
}

sub numbered {
    my ($source, $line) = @_;
    return map { [ $line++, $_ ] } split /\n/, $source, -1;
}

# Adds one unit made of [line, text] pieces.
sub add {
    my ($result, $kind, @pieces) = @_;
    my ($text, @map, @code) = ('');
    for my $piece (@pieces) {
        my ($line, $part) = @$piece;
        $part =~ s/^\s+|\s+$//g;
        next if $part eq '';
        $text .= ' ' if $text ne '';
        push @map, [ length $text, $line ];
        $text .= $part;
        $result->{lines}{$line} = 1;
    }
    return if $text !~ /[A-Za-z]/;
    my ($out, $next) = ('', 0);
    while ($text =~ /\G(?:(`+)(.+?)\1(?!`)|!?\[((?:[^\[\]]|\[[^\]]*\])*)\](?:\([^()]*(?:\([^()]*\))?[^()]*\)|\[[^\]]*\])|(https?:\S+)|(<[A-Za-z\/!][^<>]*>)|([^`!\[<h]+|.))/gs) {
        my ($start, $end) = ($-[0], $+[0]);
        # Lines that begin inside of a replaced text begin where the replacement does.
        while ($next < @map && $map[$next][0] < $end) {
            my $inside = $map[$next][0] - $start;
            $map[ $next++ ][0] = length($out) + (defined $6 && $inside > 0 ? $inside : 0);
        }
        if (defined $1 || defined $4) { push @code, defined $1 ? "$1$2$1" : $4; $out .= "\x01$#code\x01" }
        elsif (defined $3) {
            my $label = $3;
            $label =~ s/(`+)(.+?)\1/push @code, "$1$2$1"; "\x01$#code\x01"/ge;
            $out .= $label;
        }
        elsif (defined $5) { $out .= ' ' }
        else               { $out .= $6 }
    }
    $out =~ s/\*\*/  /g;    # emphasis, without moving anything
    push @{ $result->{units} }, { kind => $kind, text => $out, map => \@map, code => \@code };
}

sub restore {
    my ($unit, $text) = @_;
    $text =~ s/\x01(\d+)\x01/$unit->{code}[$1]/g;
    return $text;
}

sub line_at {
    my ($unit, $offset) = @_;
    my $line = $unit->{map}[0][1];
    for my $entry (@{ $unit->{map} }) {
        last if $entry->[0] > $offset;
        $line = $entry->[1];
    }
    return $line;
}

# Splits numbered lines of Markdown into units. Code blocks, tables' rules and link definitions are left out.
sub markdown {
    my ($result, $kind, @lines) = @_;
    my ($fence, $comment, $list, $blank, @open) = ('', 0, 0, 1);
    my $flush = sub { add($result, $kind, @open) if @open; @open = () };
    for my $entry (@lines) {
        my ($line, $text) = @$entry;
        if ($fence) { $fence = '' if $text =~ /^\s*\Q$fence\E[`~]*\s*$/; next }
        if ($comment) { $comment = 0 if $text =~ /-->/; next }
        if ($text =~ /^\s*(```+|~~~+)/) { $flush->(); $fence = $1; next }
        if ($text =~ /^\s*<!--/) { $flush->(); $comment = $text !~ /-->/; next }
        if ($text =~ /^\s*$/) { $flush->(); $blank = 1; next }
        $list = 0 if $blank && $text =~ /^\S/ && $text !~ /^(?:[-*+]|\d+[.)])\s/;
        if (!@open && $blank && !$list && $text =~ /^(?:    |\t)/) { next }
        $text =~ s/^\s*>\s?//;
        if ($text =~ /^\s*\[[^\]]+\]:\s/) { $flush->(); $blank = 0; next }
        if ($text =~ /^\s*\|/) {
            $flush->();
            table_row($result, $kind, $line, $text);
        }
        elsif ($text =~ /^\s{0,3}#{1,6}\s+(.*)/) { $flush->(); add($result, $kind, [ $line, $1 ]) }
        elsif ($text =~ /^\s*(?:[-*+]|\d+[.)])\s+(.*)/) {
            $flush->();
            $list = 1;
            @open = ([ $line, $1 ]);
        }
        else { push @open, [ $line, $text ] }
        $blank = 0;
    }
    $flush->();
}

sub table_row {
    my ($result, $kind, $line, $text) = @_;
    return if $text =~ /^[\s|:-]+$/;
    my @code;
    $text =~ s/(`+.+?`+)/push @code, $1; "\x02$#code\x02"/ge;
    $text =~ s/^\s*\|//;
    for my $cell (split /(?<!\\)\|/, $text) {
        $cell =~ s/\x02(\d+)\x02/$code[$1]/g;
        add($result, $kind, [ $line, $cell ]);
    }
}

# The comments and string literals of a Rust file; `blank` is the source with both replaced by spaces.
sub tokens {
    my ($source) = @_;
    my (@comments, @strings);
    my $blank = $source;
    while ($source =~ m~\G[^/"'rb]*+(?:(//[^\n]*)|(/\*.*?\*/)|(?<![A-Za-z0-9_])b?r(\#*)"(.*?)"\g3|b?"((?:[^"\\]++|\\.)*+)"|'(?:\\(?:u\{[^}]*\}|.)|[^\\'\n])'|.|\z)~gcs) {
        last if pos($source) >= length $source && !defined $1 && !defined $5;
        my ($start, $end);
        if    (defined $1) { ($start, $end) = ($-[1], $+[1]); push @comments, [ $start, $1 ] }
        elsif (defined $2) { ($start, $end) = ($-[2], $+[2]) }
        elsif (defined $4) { ($start, $end) = ($-[4], $+[4]); push @strings, [ $start, $4, 1 ] }
        elsif (defined $5) { ($start, $end) = ($-[5], $+[5]); push @strings, [ $start, $5, 0 ] }
        else               { next }
        (my $spaces = substr($source, $start, $end - $start)) =~ s/[^\n]/ /g;
        substr($blank, $start, $end - $start) = $spaces;
    }
    return (\@comments, \@strings, $blank);
}

sub rust {
    my ($result, $path, $source) = @_;
    my ($comments, $strings, $blank) = tokens($source);
    my @starts = (0);
    push @starts, pos $source while $source =~ /\n/g;
    my $line_of = sub {
        my ($low, $high) = (0, $#starts);
        while ($low < $high) {
            my $middle = ($low + $high + 1) >> 1;
            if ($starts[$middle] <= $_[0]) { $low = $middle } else { $high = $middle - 1 }
        }
        return $low + 1;
    };
    my @help = ranges($blank, qr/#\[derive\([^)]*\b(?:Parser|Args|Subcommand|ValueEnum)\b[^)]*\)\][^{;]*?(\{(?:[^{}]++|(?-1))*+\})/);
    comments($result, $source, $comments, $line_of, \@help);
    messages($result, $path, $strings, $blank, $line_of);
    while ($blank =~ /#\[(?:\w+::)?test\b[^\]]*\]\s*(?:#\[[^\n]*\]\s*)*(?:pub\s+)?(?:async\s+)?fn\s+(\w+)/g) {
        my $line = $line_of->($-[1]);
        push @{ $result->{units} }, { kind => 'test', text => $1, map => [ [ 0, $line ] ], code => [] };
        $result->{lines}{$line} = 1;
    }
}

sub ranges {
    my ($blank, $pattern) = @_;
    my @ranges;
    while ($blank =~ /$pattern/g) { push @ranges, [ $-[1], $+[1], $-[0] ] }
    return @ranges;
}

sub inside {
    my ($offset, $ranges) = @_;
    for my $range (@$ranges) { return 1 if $offset >= $range->[0] && $offset < $range->[1] }
    return 0;
}

# Groups comments on consecutive lines into blocks, each of which is read as Markdown.
sub comments {
    my ($result, $source, $comments, $line_of, $help) = @_;
    my ($sort, $last, $kind, @block) = ('', -1, '');
    my $flush = sub { markdown($result, $kind, @block) if @block; @block = () };
    for my $comment (@$comments) {
        my ($offset, $text) = @$comment;
        my $line = $line_of->($offset);
        my ($mark, $rest) = $text =~ m{^(///(?!/)|//!|//+) ?(.*)}s;
        my $begin = rindex($source, "\n", $offset) + 1;
        my $alone = substr($source, $begin, $offset - $begin) =~ /\S/ ? 0 : 1;
        my $here = inside($offset, $help) || next_item_is_clap($source, $offset, $help) ? 'help' : $mark =~ /^(?:\/\/\/|\/\/!)$/ ? 'doc' : 'comment';
        $here = 'comment' if $mark !~ m{^//[/!]$};
        if ("$mark$alone" ne $sort || $line != $last + 1 || !$alone || $here ne $kind) { $flush->() }
        ($sort, $last, $kind) = ("$mark$alone", $line, $here);
        push @block, [ $line, $rest ];
    }
    $flush->();
}

# Whether the doc comment at `offset` belongs to a type that derives a trait of clap.
sub next_item_is_clap {
    my ($source, $offset, $help) = @_;
    for my $range (@$help) {
        next if $offset > $range->[0] || $range->[2] - $offset > 4000 || $range->[2] < $offset;
        my $between = substr($source, $offset, $range->[2] - $offset);
        return 1 if $between =~ m{^(?:\s*(?://[/!][^\n]*|#\[[^\n]*\])\s*)*$};
    }
    return 0;
}

# Texts of errors and log lines, and help in attributes of clap. Other strings of several words are messages too, unless
# they are SQL, belong to tests, or explain a panic.
sub messages {
    my ($result, $path, $strings, $blank, $line_of) = @_;
    my $tests = $path =~ m{(?:^|/)(?:tests|benches|examples)/|tests?\.rs$} ? 0
        : $blank =~ /#\[cfg\(test\)\]\s*mod\s+\w+\s*\{/ ? $-[0] : length $blank;
    my @ranges = (
        ranges($blank, qr/#\[error$BALANCED/),
        ranges($blank, qr/\b$LOG_MACROS!\s*$BALANCED/),
    );
    my @panics = ranges($blank, qr/\b(?:(?:debug_)?assert\w*!|panic!|unreachable!|todo!|expect|expect_err|reason\s*=)\s*$BALANCED/);
    my @help = ranges($blank, qr/#\[(?:arg|command|clap|value)$BALANCED/);
    for my $string (@$strings) {
        my ($offset, $text, $raw) = @$string;
        next if $text !~ /[A-Za-z]\s+\S/;
        my $is_prose = $offset < $tests && !$raw && $text =~ /^[^\n]*[a-z]+ [a-z]+ [a-z]+ / && $text !~ $NO_PROSE;
        my $kind = inside($offset, \@ranges) ? 'message'
            : inside($offset, \@help)            ? 'help'
            : $is_prose && !inside($offset, \@panics) ? 'message'
            :                                            next;
        my $line = $line_of->($offset);
        $text =~ s/(\{[^{}]*\})/`$1`/g if $kind eq 'message' && $text !~ /`/;
        # A line ends in the source after a backslash, and in the text at \n, where a new unit begins.
        my @lines;
        for my $entry (numbered($text, $line)) {
            my ($number, $part) = @$entry;
            if (!$raw) {
                $part =~ s/^\s+// if @lines;
                $part =~ s/\\$//;
            }
            my @parts = $raw ? ($part) : split /\\n/, $part, -1;
            s/\\(["'\\])/$1/g for @parts;
            push @lines, map { ([ $number, $_ ], [ $number, '' ]) } @parts;
            pop @lines;
        }
        if ($kind eq 'help') { markdown($result, $kind, @lines) }
        else {
            my @open;
            for my $entry (@lines, [ 0, '' ]) {
                if ($entry->[1] =~ /\S/) { push @open, $entry; next }
                add($result, $kind, @open);
                @open = ();
            }
        }
    }
}

# Comments that start with #; here-documents called TEXT, which hold help; annotations of alerts.
sub hash_comments {
    my ($result, $source, $kind) = @_;
    my ($help, $last, @block, @text) = (0, -1);
    my $flush = sub { markdown($result, 'comment', @block) if @block; @block = () };
    for my $entry (numbered($source, 1)) {
        my ($line, $text) = @$entry;
        if ($help) {
            if ($text =~ /^TEXT$/) { $help = 0; markdown($result, 'help', @text); @text = () }
            else {
                # An option, or a name, and its text after two blanks: a unit of its own.
                push @text, [ $line, '' ] if $text =~ /^\s+(?:-|\S+(?: \S+)*\s{2,}\S)/;
                push @text, [ $line, $text =~ s/^\s+(?:\S+(?: \S+)*\s{2,}(?=\S))?//r ];
            }
            next;
        }
        if ($kind eq 'yaml' && $text =~ /^\s*(?:summary|description):\s*["']?(.*?)["']?\s*$/) {
            (my $value = $1) =~ s/(\{\{.*?\}\})/`$1`/g;
            add($result, 'message', [ $line, $value ]);
            next;
        }
        $help = 1 if $text =~ /<<-?['"]?TEXT['"]?/;
        if ($text =~ /^\s*#(?!!)\s?(.*)/) {
            $flush->() if $line != $last + 1;
            $last = $line;
            push @block, [ $line, $1 ] unless $1 =~ /^(?:shellcheck|syntax=)/;
        }
    }
    $flush->();
}

sub json {
    my ($result, $source) = @_;
    for my $entry (numbered($source, 1)) {
        my ($line, $text) = @$entry;
        while ($text =~ /"(?:title|description)":\s*"((?:[^"\\]|\\.)*)"/g) { add($result, 'message', [ $line, $1 ]) }
    }
}

1;
