package Check;

# Assertions for the tests in this folder. perl-base, which every Debian has, lacks Test::More.

use strict;
use warnings;
use Exporter 'import';
use File::Temp ();
our @EXPORT = qw(is like done tree run_in write_tree);

my ($passed, $failed) = (0, 0);

sub is {
    my ($got, $expected, $name) = @_;
    if ((defined $got ? $got : '(undef)') eq (defined $expected ? $expected : '(undef)')) { $passed++; return }
    $failed++;
    print "FAILED $name\n  expected: ", $expected // '(undef)', "\n  got:      ", $got // '(undef)', "\n";
}

sub like {
    my ($got, $pattern, $name) = @_;
    if (($got // '') =~ $pattern) { $passed++; return }
    $failed++;
    print "FAILED $name\n  expected: $pattern\n  got:      ", $got // '(undef)', "\n";
}

# A folder with these files that is removed at the end.
sub tree {
    my %files = @_;
    my $folder = File::Temp->newdir();
    write_tree($folder, %files);
    return $folder;
}

sub write_tree {
    my ($folder, %files) = @_;
    for my $path (sort keys %files) {
        my $parent = "$folder/$path" =~ s{/[^/]*$}{}r;
        system('mkdir', '-p', $parent) == 0 or die "mkdir $parent failed";
        open my $file, '>', "$folder/$path" or die "$path: $!";
        print $file $files{$path};
        close $file or die "$path: $!";
    }
}

# (exit status, output) of a command in a folder.
sub run_in {
    my ($folder, @command) = @_;
    open my $pipe, '-|', 'sh', '-c', 'cd "$1" && shift && exec "$@" 2>&1', 'sh', "$folder", @command or die "sh: $!";
    local $/;
    my $output = <$pipe>;
    close $pipe;
    return ($? >> 8, $output // '');
}

sub done {
    die "no test was run\n" if $passed + $failed == 0;
    print "$0: $passed passed, $failed failed\n";
    exit($failed ? 1 : 0);
}

1;
