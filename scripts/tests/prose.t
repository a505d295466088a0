#!/usr/bin/perl
# Tests of scripts/prose: the rules, the extraction of text, and the counts. Run: perl scripts/tests/prose.t

use strict;
use warnings;
use Cwd ();
my $here;
BEGIN {
    $here = Cwd::abs_path($0 =~ m{^(.*)/} ? $1 : '.');
    unshift @INC, $here, "$here/../lib";
}
use Check;
use Prose::Ratchet ();
use Prose::Rules   ();
use Prose::Text    ();

my $prose = "$here/../prose";
# Continuous integration wants the whole history, which the trees of these tests do not have.
delete $ENV{CI};

sub rules_of {
    my ($path, $source) = @_;
    my ($units) = Prose::Text::extract($path, $source);
    return join ' ', map { $_->{rule} } map { Prose::Rules::check($_) } @$units;
}

sub rejects { my ($rule, $text) = @_; is(rules_of('a.md', $text), $rule, "rejects: $text") }
sub accepts { my ($text) = @_; is(rules_of('a.md', $text), '', "accepts: $text") }

# Each rule: sentences that it must report, and ordinary English that it must not.
rejects('clause-subject', $_) for
    'Who comes back gets the rest.',
    'What cannot be parsed ends the stream.',
    'The device is full; whoever writes waits.',
    'Then nobody waits for it.',
    'One that is not open yet is opened.',
    'The rest is dropped, and who asks again is refused.',
    'A page stays until who reads it is done, since who reads it holds a lease.',
    'Of what the server sends, half is new.',
    'what the node needs';
accepts($_) for
    'The client, who holds a certificate, connects.',
    'What is a volume?',
    'Determine who holds the lock.',
    'One of the members is the leader.',
    'The page that the server wrote is dropped.',
    'What if the node stops?',
    'Only those that hold a lease vote.',
    'An error has the place, and what to do.',
    'It reports which file is missing and what to do about that.',
    'Of those that fail, most time out.',
    'Whatever the cause, start the node again.';

rejects('machine-person', $_) for
    'The command says so.',
    'A member is told the rest.',
    'The node says that the volume is full.',
    'The library knows nothing about it.',
    'The peer is heard again.',
    'The loader takes it for a library.';
accepts($_) for
    'The manual says that this is undefined.',
    'The node reports that the volume is full.',
    'The user wants a second volume.',
    'It takes a lock for each page.',
    'The well-known port of the service.',
    'The process believed to be the leader stops.',
    'The user is told the reason.',
    'The operator who started the node is told the reason.',
    'These two options are said to be equivalent.',
    'Each page is looked at once.',
    'A user knows of both.';
rejects('machine-person', $_) for 'The user stops the node, and the volume is told.', 'The user waits and the node is told.';

rejects('pronoun', $_) for
    'The thread wakes this one when he stops.',
    'With it the node starts.',
    'A copy of it is sent along with it.';
accepts($_) for
    'The thread wakes this one when it stops.',
    'A copy of it is kept.',
    'With the option, the node starts.',
    'With this in mind, keep both.',
    'Of those, two are idle.',
    'The user gives his name.';

rejects('of-chain', $_) for 'The set of epoll is full.', 'The size of the log of the volume of the server is fixed.';
accepts($_) for 'The epoll set is full.', 'The size of the log of a volume is fixed.';

rejects('term', $_) for
    'It is started anew.',
    'The bug is mended.',
    'Pages are held against the reference.',
    'The read was in vain.',
    'The longest wait is a second.',
    'The server goes on.',
    'The commit may go on.',
    'The old page is put aside.',
    'It takes more processor time.',
    'A member that is out of step leaves.',
    'The frame is handed on.',
    'No memory is to be had.',
    'Two changes of threads are saved.',
    'The transaction gives way.',
    'It does not hand on the frame.',
    'It hands it on.',
    'The read is repeated with the one before.';
accepts($_) for
    'The server continues.',
    'The attack is directed against the host.',
    'It goes on the stack.',
    'The log grows on each commit.',
    'Put the page in place.',
    'Hand over the socket.',
    'In order to shut down, stop the server.',
    'On the other hand on Linux the call returns at once.',
    'The thread holds the lock against other writers.',
    'Apply the patch, then the one before it.',
    'The alarm goes on.';

rejects('long-sentence', 'A ' . 'word ' x 41 . 'ends.');
accepts('A ' . 'word ' x 38 . 'ends.');
accepts('A ' . 'word ' x 30 . 'ends. ' . 'Another ' . 'word ' x 30 . 'ends.');

is(rules_of('a.rs', "/// See the module.\nfn a() {}\n"), 'empty-doc', 'rejects an empty doc comment');
is(rules_of('a.rs', "/// See [`Frame::decode`] for the limits.\nfn a() {}\n"), '', 'accepts a reference with a subject');
is(rules_of('a.rs', "#[error(\"the length cannot be\")]\nA,\n"), 'message-form', 'rejects "cannot be" at the end of an error');
is(rules_of('a.rs', "#[error(\"{path} cannot be read: {why}\")]\nA,\n"), '', 'accepts "cannot be" with a verb');

my $long = 'a' x 61;
is(rules_of('a.rs', "#[test]\nfn $_() {}\n"), 'test-name', "rejects the name $_") for $long, 'what_is_no_header_is_told', 'nor_does_it_with_options', 'one_that_waits', 'those_left';
is(rules_of('a.rs', "#[test]\nfn $_() {}\n"), '', "accepts the name $_") for 'rejects_invalid_header', 'one_member_of_three_can_fail', 'whole_file_is_read', 'if_none_match_returns_not_modified', 'android_is_rejected';
is(rules_of('a.rs', "fn what_is_left() {}\n"), '', 'names of functions that are no tests are left alone');

is(join(' ', map { $_->{rule} } Prose::Rules::check_subject('Fix the parser')), '', 'accepts a subject');
is(join(' ', map { $_->{rule} } Prose::Rules::check_subject('x' x 73)), 'commit-subject', 'rejects a long subject');
is(join(' ', map { $_->{rule} } Prose::Rules::check_subject('Start the node anew')), 'term', 'rejects a term in a subject');

# Extraction.
is(rules_of('a.md', "```\nnobody\n```\n\n    nobody\n\n`nobody` and [text](nobody.md)\n\n<!-- nobody -->\n"), '', 'code, links and comments of Markdown are no prose');
is(rules_of('a.md', "| a | nobody |\n|---|---|\n| whoever | b |\n"), 'clause-subject clause-subject', 'cells of a table are prose');
is(rules_of('a.rs', "let a = \"// nobody\"; let b = r#\"// nobody \" \"#; let c = '\"'; // fine\n"), '', 'strings are no comments');
is(rules_of('a.rs', "//! Nobody waits.\n"), 'clause-subject', 'module headers are prose');
is(rules_of('a.rs', "let a = 1; // nobody waits\n"), 'clause-subject', 'comments after code are prose');
is(rules_of('a.rs', "info!(name, \"nobody waits\");\neprintln!(\"who waits\");\n"), 'clause-subject clause-subject', 'log lines are prose');
is(rules_of('a.rs', "let a = \"nobody waits\";\n"), '', 'short strings are no messages');
is(rules_of('a.rs', "Err(format!(\"the node is full and nobody waits for {name}\"))\n"), 'clause-subject', 'other strings of several words are messages');
is(rules_of('tests/a.rs', "let a = \"the node is full and nobody waits\";\n"), '', 'but not in tests');
is(rules_of('a.rs', "assert!(ok, \"the node is full and nobody waits\");\n"), '', 'nor those of a panic');
is(rules_of('a.rs', "#[cfg(test)]\nmod tests {\n  const A: &str = \"the node is full and nobody waits\";\n}\n"), '', 'nor in a module of tests');
is(rules_of('a.rs', "run(\"SELECT what FROM nobody WHERE a is null\");\n"), '', 'SQL is no message');
is(rules_of('a.sh', "# nobody waits\ncat <<'TEXT'\nUsage: a\n\nThen who asks waits.\nWho asks waits.\nTEXT\n"), 'clause-subject clause-subject', 'comments and help of scripts are prose');
is(rules_of('a.sh', "cat <<'TEXT'\n  --a    " . 'word ' x 25 . "\n  --b    " . 'word ' x 25 . "\nTEXT\n"), '', 'each option of a help text is a text of its own');
is(rules_of('a.yml', "    summary: The node is told to stop\n"), 'machine-person', 'alerts are prose');
is(rules_of('a.sh', qq{fail "the file is gone and nobody waits"\n[ -e x ] || { echo "error: nobody waits for it here" >&2; exit 1; }\n}), 'clause-subject clause-subject', 'messages of scripts are prose');
is(rules_of('a.sh', qq{run "the file is gone and nobody waits"\n# echo "the node and its nobody"\ncat <<END\necho "the file is gone and nobody waits"\nEND\nx=1 # nobody\n}), 'clause-subject clause-subject', 'but not other strings of scripts, nor those in here-documents; comments after code are');
is(rules_of('a.pl', qq{print STDERR "the file is gone and nobody waits\\n";\nfail('the file is gone and nobody waits');\n}), 'clause-subject clause-subject', 'so are messages of Perl');
is(rules_of('a.rs', "/* nobody waits */\n/**\n * Nobody waits.\n */\nfn a() {}\n"), 'clause-subject clause-subject', 'block comments are prose');
is(rules_of('a.rs', "let a = r#\"the file is gone and nobody waits\"#;\n"), 'clause-subject', 'raw strings of several words are messages');
is(rules_of('a.service', "[Unit]\n# nobody waits\nDescription=nobody waits\n"), 'clause-subject clause-subject', 'units of systemd are prose');
is(rules_of('a.py', qq{# nobody waits\ndef a():\n    \"\"\"Nobody waits.\n\n    Whoever waits.\n    \"\"\"\n    print("the file is gone and nobody waits")\n}), 'clause-subject clause-subject clause-subject clause-subject', 'Python is prose');
is(rules_of('a.js', "// nobody waits\n\n/* nobody waits */\nconst a = 'the file is gone and nobody waits';\nconst b = 'nobody';\n"), 'clause-subject clause-subject clause-subject', 'scripts of pages are prose');
is(rules_of('vendor/x/vendor/a.js', "// nobody waits\n"), '', 'but not those of others');
is(rules_of('a.html', "<html><head><style>nobody</style></head><body><!-- nobody --><p class=\"nobody\">A <b>text</b>\nthat nobody waits for.</p><td>nobody</td></body></html>\n"), 'clause-subject clause-subject', 'texts of pages are prose');
is(rules_of('debian/control', "Package: nobody\nDescription: a package\n The text and\n nobody waits.\n .\n Nobody reads.\n"), 'clause-subject clause-subject', 'descriptions of packages are prose');
is(rules_of('a.rs', "macro_rules! tests { (\$(\$name:ident),*) => { \$(#[test] fn \$name() { check(\$name) })* } }\ntests!(\n    rejects_header,\n    what_is_left, nor_does_it\n);\nothers!(what_waits);\n"), 'test-name test-name', 'names that a macro makes into tests are checked');
is(rules_of('a.rs', "macro_rules! cases { (\$(\$name:ident => \$value:expr;)*) => { \$(#[test] fn \$name() { check(\$value) })* } }\ncases! {\n    what_is_left => f(who_waits, 1);\n}\n"), 'test-name test-name', 'so are those with values');
is(rules_of('a.bin', "nobody waits\n"), '', 'other files are left alone');

my ($units) = Prose::Text::extract('a.rs', "#[derive(clap::Args)]\nstruct A {\n    /// Nobody waits.\n    a: u8,\n}\n/// Nobody waits.\nstruct B;\n");
is(join(' ', map { $_->{kind} } @$units), 'help doc', 'doc comments of clap types are help');
($units) = Prose::Text::extract('a.md', "# Title\n\nThe first line `with code\nin it` and then\nnobody waits.\n");
is(join(' ', map { $_->{line} } map { Prose::Rules::check($_) } @$units), '5', 'a hit names the line of its text');

# Counts.
my ($base, $allowed) = Prose::Ratchet::parse("# comment\nbase abc\n3 1 a.md\n2 0 b c.md\n");
is($base, 'abc', 'the base is read');
is(join(' ', @{ $allowed->{'b c.md'} }), '2 0', 'a path may contain blanks');
is(join(' ', @{ (Prose::Ratchet::parse("3 1 a.md\n2 4 a.md\n"))[1]{'a.md'} }), '2 1', 'of two lines of a path, as a merge leaves them, the lower counts hold');
my ($more, $fewer) = Prose::Ratchet::compare($allowed, { 'a.md' => [ 4, 0 ], 'b c.md' => [ 1, 0 ], 'd.md' => [ 0, 1 ] });
is("@$more", 'a.md d.md', 'more hits than allowed, or none allowed');
is("@$fewer", 'b c.md', 'fewer hits');
is(eval { Prose::Ratchet::parse("x y\n"); 1 } // 'died', 'died', 'a line that is not understood is an error');

# The program in a tree of its own.
my $bad  = "Nobody waits.\n";
my $tree = tree('README.md' => "The node waits.\n", 'lab/report.md' => $bad, 'scripts/prose.allowed' => "base none\n");
my ($status, $output) = run_in($tree, $prose, '--root', '.');
is($status, 0, "a clean tree passes, and lab/ is left out: $output");
write_tree($tree, 'docs/a.md' => $bad);
($status, $output) = run_in($tree, $prose, '--root', '.');
is($status, 1, 'a planted sentence fails');
like($output, qr{^docs/a\.md:1: clause-subject: Nobody waits\.: }m, 'and is shown with its place');
($status) = run_in($tree, $prose, '--root', '.', '--update');
is($status, 1, '--update does not allow more hits');
($status) = run_in($tree, $prose, '--root', '.', '--update', '--force');
is($status, 0, '--update --force does');
($status) = run_in($tree, $prose, '--root', '.');
is($status, 0, 'then the same hits pass');
write_tree($tree, 'docs/a.md' => $bad x 2);
($status) = run_in($tree, $prose, '--root', '.');
is($status, 1, 'one more fails');
write_tree($tree, 'docs/a.md' => "The node waits.\n");
($status, $output) = run_in($tree, $prose, '--root', '.');
is($status, 1, 'fewer fail until the list is lowered');
like($output, qr{^error: 1 files have fewer or moved hits: run scripts/prose --update}m, 'with what to do');
($status) = run_in($tree, $prose, '--root', '.', '--update');
is($status, 0, '--update lowers the count');
write_tree($tree, 'docs/a.md' => $bad);
($status) = run_in($tree, $prose, '--root', '.');
is($status, 1, 'which cannot rise again');
write_tree($tree, 'docs/a.md' => "The node waits.\n", 'scripts/prose.allowed' => '');
($status, $output) = run_in($tree, $prose, '--root', '.');
is($status, 1, 'a list without a base fails');
like($output, qr/no line "base COMMIT"/, 'and says so');
($status) = run_in($tree, $prose, '--wrong');
is($status, 2, 'wrong use');
($status) = run_in($tree, $prose, '--help');
is($status, 0, 'help');

# Moved text, and subjects of commits.
my @git = ('git', '-c', 'user.name=T', '-c', 'user.email=t@example.org', '-c', 'init.defaultBranch=main');
my $moves = tree('a.md' => "$bad\nWho reads waits.\n", 'scripts/prose.allowed' => "base none\n2 0 a.md\n");
run_in($moves, @git, 'init', '-q');
run_in($moves, @git, 'add', '-A');
run_in($moves, @git, 'commit', '-qm', 'Add a file');
run_in($moves, @git, 'mv', 'a.md', 'b.md');
($status, $output) = run_in($moves, $prose, '--root', '.');
like($output, qr{^error: 2 files have fewer or moved hits}m, "git mv takes the hits along: $output");
write_tree($moves, 'b.md' => $bad, 'c.md' => "Who reads waits.\n");
($status, $output) = run_in($moves, $prose, '--root', '.');
like($output, qr{^error: 3 files have fewer or moved hits}m, "so does a split: $output");
write_tree($moves, 'd.md' => $bad);
($status) = run_in($moves, $prose, '--root', '.');
is($status, 1, 'a copy is one hit more');
unlink "$moves/d.md" or die;
write_tree($moves, 'c.md' => "Whoever reads waits.\n");
($status) = run_in($moves, $prose, '--root', '.');
is($status, 1, 'other text in the place of moved text fails');
write_tree($moves, 'c.md' => "Who reads waits.\n");
($status) = run_in($moves, $prose, '--root', '.', '--update');
is($status, 0, '--update writes the new places');
my (undef, $written) = run_in($moves, 'cat', 'scripts/prose.allowed');
like($written, qr/^1 0 b\.md\n1 0 c\.md\n\z/m, 'and removes the old one');
$written =~ s/^base none\n//m;
my (undef, $first) = run_in($moves, @git, 'rev-parse', 'HEAD');
write_tree($moves, 'scripts/prose.allowed' => "base $first$written");
run_in($moves, @git, 'add', '-A');
run_in($moves, @git, 'commit', '-qm', 'Start the node anew', '-m', 'Prose-allowed: test');
($status, $output) = run_in($moves, $prose, '--root', '.');
is($status, 1, 'the subject of a commit is checked');
like($output, qr/^\(commits\):[0-9a-f]+: term: /m, 'and shown');
($status, $output) = run_in($moves, $prose, '--root', '.', '--update', '--force');
is($status, 0, '--update --force starts at the current commit');
($status, $output) = run_in($moves, $prose, '--root', '.');
is($status, 0, "from where subjects are checked: $output");

# The list itself: its lines only fall, in each commit after its base.
my $commit = sub { run_in($moves, @git, 'add', '-A'); run_in($moves, @git, 'commit', '-qm', @_) };
my $list = sub { (run_in($moves, 'cat', 'scripts/prose.allowed'))[1] };
$commit->('Count again');
($status, $output) = run_in($moves, $prose, '--root', '.');
is($status, 1, 'a new base needs a reason in the message of its commit');
like($output, qr/no line "Prose-allowed: REASON"/, 'which is named');
run_in($moves, @git, 'commit', '-q', '--amend', '-m', 'Count again', '-m', 'Prose-allowed: test');
($status, $output) = run_in($moves, $prose, '--root', '.');
is($status, 0, "with a reason it passes: $output");
my $counted = $list->();
write_tree($moves, 'b.md' => "$bad\n$bad", 'scripts/prose.allowed' => $counted =~ s/^1 0 b\.md/2 0 b.md/mr);
($status, $output) = run_in($moves, $prose, '--root', '.');
is($status, 1, 'a line that was raised by hand fails');
like($output, qr/^scripts\/prose\.allowed: b\.md: raised from 1 0 to 2 0 in the working tree$/m, 'and is shown');
$commit->('Raise a line');
($status, $output) = run_in($moves, $prose, '--root', '.');
is($status, 1, 'also when it was committed');
like($output, qr/^scripts\/prose\.allowed: b\.md: raised from 1 0 to 2 0 in commit [0-9a-f]{12}$/m, 'and is shown with its commit');
run_in($moves, @git, 'reset', '-q', '--hard', 'HEAD^');
run_in($moves, @git, 'mv', 'b.md', 'e.md');
run_in($moves, $prose, '--root', '.', '--update');
$commit->('Move a file');
write_tree($moves, 'e.md' => "The node waits.\n");
run_in($moves, $prose, '--root', '.', '--update');
$commit->('Mend a sentence' =~ s/Mend/Fix/r);
($status, $output) = run_in($moves, $prose, '--root', '.');
is($status, 0, "a moved and then lowered line passes: $output");
write_tree($moves, 'e.md' => $bad, 'scripts/prose.allowed' => $list->() . "1 0 e.md\n");
$commit->('Raise it again');
($status, $output) = run_in($moves, $prose, '--root', '.');
is($status, 1, 'a lowered line cannot rise to where it was');
run_in($moves, @git, 'reset', '-q', '--hard', 'HEAD^');
write_tree($moves, 'scripts/prose.allowed' => $list->() =~ s/^base .*\n//mr);
($status, $output) = run_in($moves, $prose, '--root', '.');
is($status, 1, 'nor can the base be deleted');
run_in($moves, @git, 'reset', '-q', '--hard');

# A clone without history.
my $clone = tree('x' => '');
run_in($clone, @git, 'clone', '-q', '--depth', '1', "file://$moves", 'clone');
($status, $output) = run_in("$clone/clone", 'env', '-u', 'CI', $prose, '--root', '.');
is($status, 0, "a shallow clone passes: $output");
like($output, qr/^note: .* not checked: no history/m, 'with a note');
($status, $output) = run_in("$clone/clone", 'env', 'CI=true', $prose, '--root', '.');
is($status, 1, 'but fails in continuous integration');
like($output, qr/git fetch --unshallow/, 'with what to do');

done();
