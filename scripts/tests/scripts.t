#!/usr/bin/perl
# Tests of ./test, ./demo and the scripts they use, as far as that needs neither a build nor a server: wrong use, faults of
# fetched servers, sudo. Run: perl scripts/tests/scripts.t

use strict;
use warnings;
use Cwd ();
my $here;
BEGIN {
    $here = Cwd::abs_path($0 =~ m{^(.*)/} ? $1 : '.');
    unshift @INC, $here;
}
use Check;

my $root = Cwd::abs_path("$here/../..");

# A stage must be named: an empty one would be a run that tests nothing, and passes.
for my $stages ('', ',', 'unit,', ',unit', 'unit,,net', ' ', 'unit net', 'nets', '*') {
    for my $name ([], ['x']) {
        my ($status, $output) = run_in($root, './test', '--stage', $stages, @$name);
        is($status, 2, "exit status of ./test --stage '$stages' @$name");
        like($output, qr/^error: .*stage/, "message of ./test --stage '$stages' @$name");
    }
}
for my $arguments (['--stage'], ['--limit', '0'], ['--at-once', 'x'], ['--without-servers'], ['a', 'b'], ['']) {
    my ($status) = run_in($root, './test', @$arguments);
    is($status, 2, "exit status of ./test @$arguments");
}
is((run_in($root, 'scripts/shipped', '--smoke'))[0], 2, 'exit status of scripts/shipped --smoke');

# A name on the command line of make that no recipe reads.
my ($status, $output) = run_in($root, 'make', '-n', 'soak-faults', 'SOAK_ROUND=500');
is($status, 2, 'exit status of make with a variable that is misspelt');
like($output, qr/unknown variable.*SOAK_ROUND/, 'message of make with a variable that is misspelt');
for my $setting ('SOAK_ROUNDS=500', 'BENCH=--pool 128M --x=y', 'CARGO_TARGET_DIR=/x', 'NET_SUITE=--suite a') {
    is((run_in($root, 'make', '-n', 'soak-faults', $setting))[0], 0, "exit status of make $setting");
}
like((run_in($root, 'make', '-n', 'bench', 'CARGO_TARGET_DIR=/x'))[1], qr{ /x/release/redoubt bench },
    'make starts the command that cargo has built');

# fetched STATUS SETTING...: setup_fetched with a scripts/fetch-server that ends with STATUS.
sub fetched {
    my ($code, @settings) = @_;
    my $folder = tree(
        'scripts/setup.sh' => slurp("$root/scripts/setup.sh"),
        'scripts/fetch-server' => "#!/bin/sh\necho 'error: because' >&2\nexit $code\n");
    system('chmod', '755', "$folder/scripts/fetch-server") == 0 or die;
    my ($status, $output) = run_in($folder, 'env', @settings, 'bash', '-euc',
        '. scripts/setup.sh; setup_fetched mariadb-11.4 REDOUBT_MARIADB_11_4; echo "missing: ${REDOUBT_MARIADB_11_4_MISSING:-}"');
    my $faults = -e "$folder/faults" ? slurp("$folder/faults") : '';
    return ($status, $output, $faults);
}

sub slurp {
    my ($path) = @_;
    open my $file, '<', $path or die "$path: $!";
    local $/;
    return scalar <$file>;
}

# A release that is gone is left out. Everything else is a fault, in the list of faults or at once.
my ($code, $said, $faults) = fetched(4, 'SETUP_FAULTS=faults');
is($code, 0, 'exit status where the release is gone');
like($said, qr/SKIP the tests with mariadb-11\.4: because\nmissing: because/, 'reason where the release is gone');
is($faults, '', 'faults where the release is gone');
for my $fault (1, 2, 3, 124) {
    ($code, $said, $faults) = fetched($fault, 'SETUP_FAULTS=faults');
    is($code, 0, "exit status after fault $fault");
    like($said, qr/missing: (?:because|it took longer)/, "reason after fault $fault");
    like($faults, qr/^mariadb-11\.4 could not be fetched: /, "faults after fault $fault");
    is((fetched($fault))[0], 1, "exit status after fault $fault without a list of faults");
    ($code, $said, $faults) = fetched($fault, 'SETUP_FAULTS=faults', 'SETUP_GO_ON_WITHOUT=1');
    is("$code $faults", '0 ', "faults after fault $fault if the run may go on without");
}

# Without root, and with a sudo that needs a password: the message has the command to run, and sudo does not ask.
my $folder = tree('sudo' => "#!/bin/sh\n[ \"\$1\" = -n ] && exit 1\necho asked\nexit 1\n", 'id' => "#!/bin/sh\necho 1000\n");
system('chmod', '755', "$folder/sudo", "$folder/id") == 0 or die;
($code, $said) = run_in($root, 'env', "PATH=$folder:$ENV{PATH}", 'bash', '-euc',
    '. scripts/setup.sh; setup_packages no-such-program:some-package </dev/null');
is($code, 1, 'exit status where sudo wants a password');
like($said, qr/run first: sudo apt-get install .* some-package/, 'message where sudo wants a password');
is($said =~ /asked/ ? 'asked' : 'not asked', 'not asked', 'sudo in the background');

# Plugins: an older package in the folder does not matter, and plugins of another server are removed.
my $plugins = tree(
    'scripts/setup.sh' => slurp("$root/scripts/setup.sh"),
    'bin/mariadbd' => "#!/bin/sh\necho server \$(cat version)\n",
    'bin/apt-get' => "#!/bin/sh\necho \"\$*\" >>\"\$LOG\"\n: >\"\$3_2.deb\"\n",
    'bin/dpkg' => "#!/bin/sh\n[ \$# -eq 3 ] || exit 1\nmkdir -p usr/lib/mysql/plugin\n: >usr/lib/mysql/plugin/none.so\n",
    'version' => '1', 'target/mariadb-server/version' => "server 1\n", 'target/mariadb-server/some_1.deb' => '');
system('chmod', '755', glob "$plugins/bin/*") == 0 or die;
my @plugins = ('env', "PATH=$plugins/bin:$ENV{PATH}", "LOG=$plugins/log", 'bash', '-euc',
    '. scripts/setup.sh; REDOUBT_PLUGINS=none:some; setup_plugins');
for my $run (['1', 1, 'first'], ['1', 1, 'second'], ['2', 2, 'newer server']) {
    my ($version, $downloads, $name) = @$run;
    write_tree($plugins, 'version' => $version);
    is((run_in($plugins, @plugins))[0], 0, "exit status of plugins, $name");
    is(scalar(() = slurp("$plugins/log") =~ /download/g), $downloads, "downloads of plugins, $name");
}

# stub_test CARGO OPTION...: ./test in a tree with this cargo, whose runner prints its options and the list of faults.
sub stub_test {
    my ($cargo, @options) = @_;
    my $none = join '', map { "setup_$_() { :; }\n" }
        qw(paths packages server_version rust plugins servers browser prometheus component tracefs);
    my $passes = "#!/bin/sh\n";
    my $tree = tree(
        'test' => slurp("$root/test"), 'scripts/setup.sh' => slurp("$root/scripts/setup.sh") . $none,
        'Makefile' => "INSTALLED = -p x\nDEMO = -p y\n", 'bin/cargo' => "#!/bin/sh\n$cargo\n",
        'target/release/redoubt-runner' => "#!/bin/sh\necho \"runner: \$*\"\ncat target/test/failed-steps\n",
        (map { ("scripts/$_" => $passes) } qw(prose links planted checked)),
        'scripts/shipped' => "#!/bin/sh\necho \"shipped \$1\"\n",
        (map { ("scripts/tests/$_.t" => "1;\n") } qw(prose links scripts)));
    system('chmod', '755', "$tree/test", glob("$tree/bin/* $tree/target/release/*"),
        map { "$tree/scripts/$_" } qw(prose links planted checked shipped)) == 0 or die;
    return run_in($tree, 'env', '-u', 'CARGO_TARGET_DIR', '-u', 'REDOUBT_ALLOWED_SKIPS', "PATH=$tree/bin:$ENV{PATH}",
        './test', @options);
}

($code, $said) = stub_test('[ "$1" != clippy ] || exit 101');
is($code, 0, 'exit status of a runner that passes');
like($said, qr/^error: failed: clippy \(exit status 101\)$/m, 'message of a failed step');
like($said, qr/^runner: .*--stage lint --stage unit --stage volume --stage smoke$/m, 'runner after a failed step');
like($said, qr/^clippy: exit status 101$/m, 'list of failed steps');
($code, $said) = stub_test('[ "$1" != clippy ] || exit 101', '--stage', 'lint,checked');
like($said, qr/^clippy: exit status 101\nclippy-default: exit status 101\nclippy-demo: exit status 101$/m, 'list of failed steps of two stages');
($code, $said) = stub_test('[ "$1" != build ] || exit 101', '--stage', 'lint');
is($code, 1, 'exit status after a failed build');
like($said, qr/nothing to test without: build; .*\nFailed before that:\n  build: exit status 101/, 'list after a failed build');
is($said =~ /^runner/m ? 'started' : 'not started', 'not started', 'runner after a failed build');
($code, $said) = stub_test('exit 0', '--stage', 'checked');
like($said, qr/^== shipped-check\n.*^== fuzz-programs\n.*^runner: [^\n]*--stage checked$/ms, 'runner in stage checked');
($code, $said) = stub_test('[ "$1" != build ] || exec sleep 1000', '--stage', 'unit', '--limit', '3');
is($code, 1, 'exit status at the limit');
like($said, qr/^  build: ended after its limit of \d s$/m, 'list at the limit');
($code, $said) = stub_test('exit 0', '--stage', 'packaging', '--stage', 'checked');
like($said, qr/shipped --build\n.*shipped --units\n.*== build\n.*== planted-bugs\n.*shipped --smoke\n/s, 'order of steps');

# ./demo with programs that only wait. However it ends, its processes and its folder are gone afterwards: with the reader
# of its output gone, as by `| head` and `| tee` at an interrupt, and at the end of the terminal.
sub wait_for {
    my ($look, $what) = @_;
    for (1 .. 1200) {
        return 1 if $look->();
        select undef, undef, undef, 0.05;
    }
    is('it did not happen', 'it happened', $what);
    return 0;
}

sub demo_ended_by {
    my ($signal, $name) = @_;
    my $tree = tree(
        'demo' => slurp("$root/demo"),
        'scripts/setup.sh' => "setup_demo() { :; }\n",
        'target/release/redoubt' => <<'SH',
#!/bin/sh
case "$1" in
node) echo $$ >node.pid; echo listening on 127.0.0.1:1; exec sleep 1000 ;;
run) echo $$ >run.pid; exec sleep 1000 ;;
esac
SH
        'target/release/redoubt-workload' => "#!/bin/sh\n", 'tmp/none' => '');
    system('chmod', '755', "$tree/demo", glob "$tree/target/release/*") == 0 or die;
    pipe my $reader, my $writer or die "pipe: $!";
    my $demo = fork // die "fork: $!";
    if (!$demo) {
        setpgrp;
        chdir $tree or die;
        $ENV{TMPDIR} = "$tree/tmp";
        delete $ENV{CARGO_TARGET_DIR};
        $SIG{PIPE} = $SIG{INT} = $SIG{HUP} = 'DEFAULT';
        open STDOUT, '>&', $writer or die;
        open STDERR, '>&', $writer or die;
        close $reader;
        exec './demo' or die;
    }
    close $writer;
    wait_for(sub { -s "$tree/run.pid" && -s "$tree/node.pid" }, "start of ./demo, $name") or return;
    close $reader;
    kill $signal, -$demo;
    waitpid $demo, 0;
    my $node = slurp("$tree/node.pid") + 0;
    wait_for(sub { !kill 0, $node or slurp("/proc/$node/stat") =~ /\) Z / }, "end of the node, $name");
    is(join(' ', map { s{.*/}{}r } glob "$tree/tmp/*"), 'none', "folder of ./demo, $name");
}

demo_ended_by('INT', 'interrupted without a reader');
demo_ended_by('HUP', 'hung up without a reader');
demo_ended_by('TERM', 'terminated without a reader');

done();
