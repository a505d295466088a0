package Prose::Text;

# Extracts prose from source files: Markdown; comments, messages and names of tests in Rust; comments and messages of shell,
# Perl, Python, JavaScript; texts of HTML; comments of TOML, YAML, make, systemd units, container files; annotations of
# alerts; descriptions of packages.
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
    return 'script'   if $path =~ m{/vendor/} ? 0 : $path =~ /\.js$/;
    return 'html'     if $path =~ /\.html$/;
    return 'python'   if $path =~ /\.py$/;
    return 'control'  if $path =~ m{(?:^|/)debian/control$};
    return 'shell'    if $path =~ m{\.(?:sh|pm|pl|t|prerm|postrm|preinst|postinst)$};
    return 'hash'     if $path =~ /\.(?:toml|service|socket|timer|target|conf)$/ || $path =~ m{(?:^|/)(?:Makefile|Dockerfile[^/]*|allowed-skips|rules)$};
    if ($path !~ m{\.[^/]*$}) {
        return 'python' if ($head // '') =~ /^#!.*\bpython/;
        return 'shell'  if ($head // '') =~ /^#!.*\b(?:bash|sh|perl)\b/;
    }
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
    elsif ($kind eq 'script')   { javascript($result, $source) }
    elsif ($kind eq 'html')     { html($result, $source) }
    elsif ($kind eq 'python')   { python($result, $source) }
    elsif ($kind eq 'control')  { control($result, $source) }
    else                        { hash_comments($result, $path, $source, $kind) }
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
        elsif (defined $2) { ($start, $end) = ($-[2], $+[2]); push @comments, [ $start, $2 ] }
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
    for my $name (test_names($blank)) {
        my ($offset, $text) = @$name;
        my $line = $line_of->($offset);
        push @{ $result->{units} }, { kind => 'test', text => $text, map => [ [ 0, $line ] ], code => [] };
        $result->{lines}{$line} = 1;
    }
}

# [offset, name] of each test, also of those that a macro of the same file makes from the names in its calls.
sub test_names {
    my ($blank) = @_;
    my $test = qr/#\[(?:\w+::)?test\b[^\]]*\]\s*(?:#\[[^\n]*\]\s*)*(?:pub\s+)?(?:async\s+)?fn\s+/;
    my (@names, @makers);
    while ($blank =~ /$test(\w+)/g) { push @names, [ $-[1], $1 ] }
    while ($blank =~ /\bmacro_rules!\s*(\w+)\s*(\{(?:[^{}]++|(?-1))*+\})/g) {
        my ($macro, $body) = ($1, $2);
        push @makers, $macro if $body =~ /$test\$/;
    }
    for my $macro (@makers) {
        while ($blank =~ /\b$macro!\s*(\((?:[^()]++|(?-1))*+\)|\{(?:[^{}]++|(?-1))*+\}|\[[^\]]*\])/g) {
            my ($begin, $arguments) = ($-[1], $1);
            while ($arguments =~ /(?<=[\s({\[,])([a-z]\w*)(?=\s*(?:=>|,|\s[a-z]|[)}\]]|$|:\s))/g) { push @names, [ $begin + $-[1], $1 ] }
        }
    }
    return @names;
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
        if ($text =~ m{^/\*}) {
            $flush->();
            ($sort, $last) = ('', -1);
            (my $inside = substr $text, 0, -2) =~ s{^/\*+!? ?}{};
            markdown($result, $text =~ m{^/\*(?:\*[^*/]|!)} ? 'doc' : 'comment', map { $_->[1] =~ s/^\s*\* ?//; $_ } numbered($inside, $line));
            next;
        }
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
        my $is_prose = $offset < $tests && $text =~ /^[^\n]*[a-z]+ [a-z]+ [a-z]+ / && $text !~ $NO_PROSE;
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

# Comments that start with #; here-documents called TEXT, which hold help; messages of scripts; annotations of alerts;
# descriptions of units.
sub hash_comments {
    my ($result, $path, $source, $kind) = @_;
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
        if ($kind eq 'hash' && $text =~ /^Description=(.+)/) { add($result, 'message', [ $line, $1 ]); next }
        $help = 1 if $text =~ /<<-?['"]?TEXT['"]?/;
        if ($text =~ /^\s*#(?!!)\s?(.*)/) {
            $flush->() if $line != $last + 1;
            $last = $line;
            push @block, [ $line, $1 ] unless $1 =~ /^(?:shellcheck|syntax=)/;
            next;
        }
        # A comment after code, where nothing before it opens a string.
        if ($kind ne 'yaml' && $text =~ /^[^#"'`\\]*[^#"'`\\\s{(\$]\s+#\s+([^{].*)/) { add($result, 'comment', [ $line, $1 ]) }
    }
    $flush->();
    shell_messages($result, $source) if $kind eq 'shell' && $path !~ /\.t$/;
}

# Strings of several words after a command that prints: a message for a person. A command is a word at the begin of a
# line, or behind `;`, `{`, `&&`, `||`, `then`, `else`, `do`.
my $SHELL_SAYS = qr/(?:echo|printf|print|fail|die|misuse|wrong_use|note|say|warn|log|unreachable|setup_fail|setup_say|step|skip|error|complain)/;
my $QUOTED     = qr/"((?:[^"\\]++|\\.)*+)"|'([^']*+)'/s;

sub shell_messages {
    my ($result, $source) = @_;
    (my $blank = $source) =~ s{(^[ \t]*#[^\n]*)}{$1 =~ s/[^\n]/ /gr}gme;
    $blank =~ s{(<<-?['"]?(\w+)['"]?[^\n]*\n)(.*?\n[ \t]*\g2\n)}{my ($begin, $rest) = ($1, $3); $begin . ($rest =~ s/[^\n]/ /gr)}gse;
    while ($blank =~ /(?:^|[;{(]|&&|\|\||\bthen\b|\belse\b|\bdo\b)[ \t]*$SHELL_SAYS[ \t(]+(?:STDERR[ \t]+|-[a-zA-Z]+[ \t]+|>&2[ \t]+)*$QUOTED/gm) {
        my ($offset, $text) = defined $1 ? ($-[1], $1) : ($-[2], $2);
        next if $text !~ /[a-z]+ [a-z]+ [a-z]+/ || $text =~ $NO_PROSE;
        my $line = 1 + (substr($blank, 0, $offset) =~ tr/\n//);
        $text =~ s/\\(["\\\$])/$1/g;
        $text =~ s/\\n/ /g;
        $text =~ s/(\$\{[^{}]*\}|\$\([^()]*\)|\$\w+)/`$1`/g if $text !~ /`/;
        add($result, 'message', numbered($text, $line));
    }
}

# Comments and strings of several words of a script of the status page.
sub javascript {
    my ($result, $source) = @_;
    my ($last, @block) = (-1);
    my $flush = sub { markdown($result, 'comment', @block) if @block; @block = () };
    my ($line, $at) = (1, 0);
    while ($source =~ m~//([^\n]*)|/\*(.*?)\*/|"((?:[^"\\\n]++|\\.)*+)"|'((?:[^'\\\n]++|\\.)*+)'|`((?:[^`\\]++|\\.)*+)`~gs) {
        $line += substr($source, $at, $-[0] - $at) =~ tr/\n//;
        $at = $-[0];
        if (defined $1 || defined $2) {
            my @lines = numbered($1 // $2, $line);
            $flush->() if $line != $last + 1;
            push @block, map { $_->[1] =~ s/^\s*\*? ?//; $_ } @lines;
            $last = $lines[-1][0];
            next;
        }
        my $text = $3 // $4 // $5;
        next if $text !~ /[a-z]+ [a-z]+ [a-z]+/ || $text =~ /[<>]|;\s*$/;
        $text =~ s/(\$\{[^{}]*\})/`$1`/g if $text !~ /`/;
        add($result, 'message', numbered($text, $line));
    }
    $flush->();
}

# Texts between the tags of a page, each a unit that ends at a tag of a block.
sub html {
    my ($result, $source) = @_;
    my $blank = sub { $_[0] =~ s/[^\n]/ /gr };
    $source =~ s{(<(script|style)\b.*?</\g2>|<!--.*?-->)}{$blank->($1)}gsie;
    my @open;
    my $flush = sub { add($result, 'message', @open) if @open; @open = () };
    for my $entry (numbered($source =~ s{(<[^<>]*\n[^<>]*>)}{$blank->($1)}gser, 1)) {
        my ($line, $text) = @$entry;
        for my $part (split m{(</?(?:p|li|ul|ol|td|th|tr|table|thead|tbody|div|h\d|section|main|header|title|body|html|head|button|label|option|summary|details)\b[^<>]*>)}, $text) {
            if ($part =~ /^</) { $flush->() if $part !~ m{^</?(?:b|i|em|code|a|span)\b} }
            elsif ($part =~ /\S/) { push @open, [ $line, $part ] }
        }
    }
    $flush->();
}

# Comments, and docstrings, of Python.
sub python {
    my ($result, $source) = @_;
    my ($doc, $last, @block, @text) = (undef, -1);
    my $flush = sub { markdown($result, 'comment', @block) if @block; @block = () };
    for my $entry (numbered($source, 1)) {
        my ($line, $text) = @$entry;
        if (defined $doc) {
            if ($text =~ /^(.*?)\Q$doc\E/) { markdown($result, 'doc', @text, [ $line, $1 ]); $doc = undef; @text = () }
            else                           { push @text, [ $line, $text =~ s/^\s+//r ] }
        }
        elsif ($text =~ /^\s*("""|\x27\x27\x27)(.*)/) {
            my ($mark, $rest) = ($1, $2);
            if ($rest =~ /^(.*?)\Q$mark\E/) { markdown($result, 'doc', [ $line, $1 ]) }
            else                            { $doc = $mark; @text = ([ $line, $rest ]) }
        }
        elsif ($text =~ /^\s*#(?!!)\s?(.*)/) {
            $flush->() if $line != $last + 1;
            $last = $line;
            push @block, [ $line, $1 ];
        }
        else {
            while ($text =~ /\b(?:print|exit|Exception|Error|error|info|warning)\(\s*f?(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')/g) {
                my $string = $1 // $2;
                add($result, 'message', [ $line, $string =~ s/(\{[^{}]*\})/`$1`/gr ]) if $string =~ /[a-z]+ [a-z]+ [a-z]+/;
            }
        }
    }
    $flush->();
}

# Descriptions of Debian packages: the first line, and paragraphs that a line with a dot separates.
sub control {
    my ($result, $source) = @_;
    my ($inside, @open) = (0);
    my $flush = sub { add($result, 'message', @open) if @open; @open = () };
    for my $entry (numbered($source, 1)) {
        my ($line, $text) = @$entry;
        if    ($text =~ /^Description:\s*(.*)/)       { $flush->(); add($result, 'message', [ $line, $1 ]); $inside = 1 }
        elsif ($inside && $text =~ /^\s+\.\s*$/)       { $flush->() }
        elsif ($inside && $text =~ /^\s+[*-]\s+(.*)/)  { $flush->(); @open = ([ $line, $1 ]) }
        elsif ($inside && $text =~ /^\s+(\S.*)/)       { push @open, [ $line, $1 ] }
        else                                          { $flush->(); $inside = 0 }
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
