package Links;

# Finds links in Markdown whose target does not exist. `check` takes a root and the paths of its files; it returns
# { path, line, link, reason } of each dead link. Anchors follow the rules of GitHub and mdBook: the words of the heading
# in lower case, without punctuation, joined by hyphens, with -1, -2, ... for headings that repeat.

use strict;
use warnings;

# Names in backticks that start so are paths from the root.
my $PATH = qr{(?:crates|docs|scripts|packaging|fuzz|lab)/[A-Za-z0-9_./-]+};

# The text of a link: brackets inside are balanced, and may be a link or a picture.
my $TEXT = qr/(?:[^\[\]]|\[[^\]]*\](?:\([^)]*\))?)*/;

sub check {
    my ($root, @files) = @_;
    my (%exists, %anchors, @dead);
    for my $file (@files) {
        $exists{$file} = 1;
        my $folder = $file;
        $exists{$folder} = 1 while $folder =~ s{/[^/]*$}{};
    }
    $exists{''} = 1;
    my $anchors_of = sub {
        my ($path) = @_;
        return $anchors{$path} //= anchors(read_file("$root/$path"));
    };
    for my $path (grep { /\.md$/ && !m{^lab/} } @files) {
        for my $link (links(read_file("$root/$path"))) {
            my $reason = reason($path, $link, \%exists, $anchors_of) // next;
            push @dead, { path => $path, line => $link->{line}, link => $link->{target}, reason => $reason };
        }
    }
    return @dead;
}

# Pages below a folder that its list does not link: docs/ has SUMMARY.md, lab/ has README.md.
sub unlisted {
    my ($root, @files) = @_;
    my @missing;
    for my $list (grep { -f "$root/$_" } 'docs/SUMMARY.md', 'lab/README.md') {
        my ($folder) = $list =~ m{^([^/]+)/};
        my %listed = map { (resolve($list, $_->{target} =~ s/#.*//r) // '') => 1 } grep { !$_->{code} } links(read_file("$root/$list"));
        push @missing, map { { path => $_, list => $list } } grep { m{^$folder/.*\.md$} && $_ ne $list && !$listed{$_} } @files;
    }
    return @missing;
}

# Tests that the table of invariants names and the tree does not have: { path, line, name }.
sub missing_tests {
    my ($root, @files) = @_;
    my $path = 'ARCHITECTURE.md';
    return () if !grep { $_ eq $path } @files;
    my ($inside, @named) = (0);
    for my $entry (text_lines(read_file("$root/$path"))) {
        my ($line, $text) = @$entry;
        if ($text =~ /^#/) { $inside = $text =~ /^#+ Invariants/; next }
        next if !$inside || $text !~ /^\|/;
        my $shown_by = (split /(?<!\\)\|/, $text)[4] // next;
        push @named, map { { path => $path, line => $line, name => $_ } } $shown_by =~ /`([a-z0-9]+(?:_[a-z0-9]+){2,})`/g;
    }
    return () if !@named;
    my %known;
    for my $source (grep { /\.rs$/ } @files) {
        $known{ ($source =~ m{([^/]+)\.rs$})[0] } = 1;
        my $text = read_file("$root/$source");
        $known{$1} = 1 while $text =~ /\bfn\s+(\w+)/g;
    }
    return grep { !$known{ $_->{name} } } @named;
}

# Why a link is dead; undef if it is not.
sub reason {
    my ($path, $link, $exists, $anchors_of) = @_;
    my $target = $link->{target};
    if ($link->{code}) {
        $target =~ s{/$}{};
        return undef if $exists->{$target} || grep { $exists->{"$target$_"} } '.rs', '.md';
        return 'no such path';
    }
    return undef if $target =~ /^[a-z][a-z0-9+.-]*:/i;
    my ($file, $anchor) = $target =~ /^([^#]*)(?:#(.*))?$/;
    my $place = $file eq '' ? $path : resolve($path, $file);
    return 'leads out of the tree' if !defined $place;
    return 'no such file' if !$exists->{$place};
    return undef if !defined $anchor || $anchor eq '' || $place !~ /\.md$/;
    return $anchors_of->($place)->{ decode($anchor) } ? undef : 'no such heading';
}

sub decode { my ($text) = @_; $text =~ s/%([0-9A-Fa-f]{2})/chr hex $1/ge; return $text }

# A relative link from a file, as a path from the root; undef if it leads out.
sub resolve {
    my ($path, $link) = @_;
    $link = decode($link =~ s/\?.*//r);
    my @parts = $link =~ m{^/} ? () : split m{/}, $path;
    pop @parts if $link !~ m{^/};
    for my $part (split m{/}, $link) {
        if ($part eq '..') { return undef if !@parts; pop @parts }
        elsif ($part ne '.' && $part ne '') { push @parts, $part }
    }
    return join '/', @parts;
}

# A page of docs/ for a book that has nothing but docs/: links that leave that folder become their text, and the path in
# backticks. Code is left alone.
sub for_book {
    my ($path, $source) = @_;
    my ($result, $fence) = ('', '');
    my $stay = sub {
        my ($whole, $text, $target) = @_;
        return $whole if $target =~ /^(?:[a-z][a-z0-9+.-]*:|#)/i;
        my $place = resolve($path, $target =~ s/#.*//r) // return $whole;
        return $whole if $place =~ m{^docs(?:/|$)};
        $text =~ s{^\.\./+}{};
        return $text !~ /\s/ && index("/$place", '/' . $text =~ s/`//gr) >= 0 ? "`$place`" : "$text (`$place`)";
    };
    # Blocks of code stand between texts, each of which may hold links over the end of a line.
    my $text = '';
    my $flush = sub {
        $text =~ s{(`+)(.+?)\1(?!`)|(!?\[($TEXT)\]\(\s*(?:<([^<>\n]*)>|([^\s()<>]*))(?:\s+["'][^)]*)?\s*\))}
            {defined $1 ? "$1$2$1" : $stay->($3, $4, $5 // $6)}gse;
        $result .= $text;
        $text = '';
    };
    for my $line (split /(?<=\n)/, $source) {
        if ($fence) { $result .= $line; $fence = '' if $line =~ /^\s*\Q$fence\E[`~]*\s*$/ }
        elsif ($line =~ /^\s*(```+|~~~+)/) { $flush->(); $fence = $1; $result .= $line }
        else { $text .= $line }
    }
    $flush->();
    return $result;
}

sub read_file {
    my ($path) = @_;
    open my $file, '<', $path or die "error: cannot read $path: $!\n";
    local $/;
    return scalar(<$file>) // '';
}

# [line, text] outside of code blocks.
sub text_lines {
    my ($source) = @_;
    my ($fence, $number, @lines) = ('', 0);
    for my $text (split /\n/, $source) {
        $number++;
        if ($fence) { $fence = '' if $text =~ /^\s*\Q$fence\E[`~]*\s*$/ }
        elsif ($text =~ /^\s*(```+|~~~+)/) { $fence = $1 }
        else { push @lines, [ $number, $text ] }
    }
    return @lines;
}

sub links {
    my ($source) = @_;
    my (@links, %defined);
    my @lines = text_lines($source);
    # A link's text may go over the end of a line: lines are joined, and offsets lead back to their numbers.
    my ($all, @starts) = ('');
    for my $entry (@lines) { push @starts, [ length $all, $entry->[0] ]; $all .= "$entry->[1]\n" }
    my $line_of = sub {
        my ($offset) = @_;
        my ($low, $high) = (0, $#starts);
        while ($low < $high) {
            my $middle = ($low + $high + 1) >> 1;
            if ($starts[$middle][0] <= $offset) { $low = $middle } else { $high = $middle - 1 }
        }
        return $starts[$low][1];
    };
    while ($all =~ /(`+)(.+?)\1(?!`)/gs) {
        my ($start, $end, $code) = ($-[0], $+[0], $2);
        push @links, { line => $line_of->($start), target => $1, code => 1 }
            if $code =~ m{^($PATH?)(?::\d+)?$} && $code !~ /[*{<\$]|\.\.\.|\/(?!README|CHANGELOG|SUMMARY|GLOSSARY)[A-Z_]{3,}\b/;
        # Brackets in code are no links.
        my $length = $end - $start;
        substr($all, $start, $length) = substr($all, $start, $length) =~ tr/[]()/    /r;
        pos($all) = $end;
    }
    while ($all =~ /^\s{0,3}\[([^\]]+)\]:\s+(?:<([^<>\n]*)>|(\S+))(?:\s|$)/gm) {
        $defined{ label($1) } = 1;
        push @links, { line => $line_of->($-[0]), target => $2 // $3 };
    }
    # A target in angle brackets may hold blanks.
    while ($all =~ /(?=\[$TEXT\]\(\s*(?:<([^<>\n]*)>|([^\s()<>]*(?:\([^\s()]*\)[^\s()<>]*)*))(?:\s+["'][^)]*)?\s*\))\[/g) {
        push @links, { line => $line_of->($-[0]), target => $1 // $2 };
    }
    while ($all =~ /<(?:a\s[^<>]*?\bhref|(?:img|source|video|audio|iframe|script)\s[^<>]*?\bsrc)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'<>]+))/gi) {
        push @links, { line => $line_of->($-[0]), target => $1 // $2 // $3 };
    }
    # References: [text][name], [name][]. A lone [name] is one if a definition has its name, which may hang on the case
    # of letters and on blanks only; other brackets are text, as in `a[b]` or "[optional]".
    my %taken;
    while ($all =~ /\[($TEXT)\]\[([^\[\]]*)\]/g) {
        my ($start, $end, $text, $name) = ($-[0], $+[0], $1, $2);
        $name = $text if $name !~ /\S/;
        push @links, { line => $line_of->($start), target => "#[$name]" } if !$defined{ label($name) };
        $taken{$_} = 1 for $start .. $end - 1;
    }
    # A lone [text] in a sentence looks like a link that lost its target: several words, or the name of a file.
    while ($all =~ /(?<![\\\w\]!])\[((?![ xX]\])[^\[\]\n]+(?:\n[^\[\]\n]+)?)\](?![\[(:\w])/g) {
        my ($start, $name) = ($-[0], $1);
        next if $taken{$start} || $defined{ label($name) } || substr($all, rindex($all, "\n", $start) + 1, 4) =~ /^(?:    |\t)/;
        push @links, { line => $line_of->($start), target => "#[$name]" } if $name =~ /\A[\w.\/-]+\.(?:md|html|rs|toml|svg|png)\z|\A\w[\w'.,-]*(?:\s+[\w'.,-]+)*\z/;
    }
    return @links;
}

# The name of a reference: case and blanks make no difference.
sub label { my ($name) = @_; $name =~ s/\s+/ /g; $name =~ s/^ | $//g; return lc $name }

# The anchors of a document, as a set.
sub anchors {
    my ($source) = @_;
    my (%anchors, %count, $before);
    for my $entry (text_lines($source)) {
        my $text = $entry->[1];
        my $heading;
        if ($text =~ /^\s{0,3}#{1,6}\s+(.*?)(?:\s+#+)?\s*$/) { $heading = $1 }
        elsif ($text =~ /^(?:=+|-+)\s*$/ && defined $before && $before =~ /^[^\s|>#-]/) { $heading = $before }
        $anchors{$1} = 1 while $text =~ /<a\s+(?:id|name)="([^"]+)"/g;
        $before = $text;
        next if !defined $heading;
        my $anchor = slug($heading);
        my $number = $count{$anchor}++;
        $anchors{ $number ? "$anchor-$number" : $anchor } = 1;
    }
    return \%anchors;
}

sub slug {
    my ($heading) = @_;
    $heading =~ s/!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^)]*\)/$1/g;
    utf8::decode($heading);
    $heading = lc $heading;
    $heading =~ s/[^\w\- ]//g;
    $heading =~ s/ /-/g;
    utf8::encode($heading);
    return $heading;
}

1;
