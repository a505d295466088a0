package Prose::Ratchet;

# How many hits each file may have. A count may only fall, in every commit after the one that wrote the `base` line. The
# file has one line per path, sorted by path:
#
#     HABITS LENGTHS PATH
#
# HABITS are hits of the rules about language, LENGTHS those of long sentences and names. A path that is not listed may
# have none. `base COMMIT` names the commit after which subjects of commits are checked.

use strict;
use warnings;

my $HEADER = <<'TEXT';
# How many hits of scripts/prose each file may have: about language, about length, path. Counts may only fall.
# scripts/prose --update writes lower counts. A path without a line may have none.
TEXT

sub parse {
    my ($text) = @_;
    my ($base, %allowed) = (undef);
    for (split /\n/, $text) {
        next if /^\s*(?:#|$)/;
        if    (/^base (\S+)$/)         { $base = $1 }
        elsif (/^(\d+) (\d+) (.+)$/)   { lower(\%allowed, $3, $1, $2) }
        else                           { die "error: scripts/prose.allowed: line not understood: $_\n" }
    }
    return ($base, \%allowed);
}

# A merge keeps the lines of both sides (.gitattributes): the lower counts hold.
sub lower {
    my ($allowed, $path, @counts) = @_;
    my $known = $allowed->{$path} // \@counts;
    $allowed->{$path} = [ map { $counts[$_] < $known->[$_] ? $counts[$_] : $known->[$_] } 0, 1 ];
}

sub format {
    my ($base, $allowed) = @_;
    my $text = $HEADER . (defined $base ? "base $base\n" : '');
    for my $path (sort keys %$allowed) {
        my ($habits, $lengths) = @{ $allowed->{$path} };
        $text .= "$habits $lengths $path\n" if $habits || $lengths;
    }
    return $text;
}

# Compares counts with what is allowed: (paths with more, paths with fewer), as lists.
sub compare {
    my ($allowed, $counts) = @_;
    my (%paths, @more, @fewer);
    $paths{$_} = 1 for keys %$allowed, keys %$counts;
    for my $path (sort keys %paths) {
        my ($may, $has) = ($allowed->{$path} // [ 0, 0 ], $counts->{$path} // [ 0, 0 ]);
        if    ($has->[0] > $may->[0] || $has->[1] > $may->[1]) { push @more,  $path }
        elsif ($has->[0] < $may->[0] || $has->[1] < $may->[1]) { push @fewer, $path }
    }
    return (\@more, \@fewer);
}

# A text that moves to another file brings its hits along: takes paths out of `more` whose surplus was in files that
# have fewer hits now. `old` and `now` give the hits of a path, then and now, as keys. `none_is_fine` takes out paths
# without any new hit, too.
sub without_moved {
    my ($more, $fewer, $old, $now, $none_is_fine) = @_;
    my %pool;
    for my $path (@$fewer) {
        $pool{$_}++ for $old->($path);
        for my $key ($now->($path)) { $pool{$key}-- if $pool{$key} }
    }
    my @left;
    for my $path (@$more) {
        my %before;
        $before{$_}++ for $old->($path);
        my @surplus = grep { !($before{$_} && $before{$_}--) } $now->($path);
        my %taken;
        my $moved = grep { ($pool{$_} // 0) > ($taken{$_} // 0) && ++$taken{$_} } @surplus;
        if ($moved == @surplus && ($moved > 0 || $none_is_fine)) { $pool{$_} -= $taken{$_} for keys %taken }
        else                                  { push @left, $path }
    }
    return \@left;
}

# The counts to write: lower ones always, higher ones for `paths` only.
sub updated {
    my ($allowed, $counts, $paths) = @_;
    my (%higher, %new);
    $higher{$_} = 1 for @$paths;
    for my $path (keys %$counts) {
        my ($may, $has) = ($allowed->{$path} // [ 0, 0 ], $counts->{$path});
        $new{$path} = [ map { $higher{$path} || $has->[$_] < $may->[$_] ? $has->[$_] : $may->[$_] } 0, 1 ];
    }
    return \%new;
}

1;
