#!/usr/bin/perl
# Tests of scripts/links. Run: perl scripts/tests/links.t

use strict;
use warnings;
use Cwd ();
my $here;
BEGIN {
    $here = Cwd::abs_path($0 =~ m{^(.*)/} ? $1 : '.');
    unshift @INC, $here, "$here/../lib";
}
use Check;
use Links ();

my $links = "$here/../links";

# Anchors.
is(Links::slug($_->[0]), $_->[1], "anchor of $_->[0]") for
    [ 'The way back',             'the-way-back' ],
    [ 'What `--tls` does, 2.0',   'what---tls-does-20' ],
    [ 'a_b: (c) & d',             'a_b-c--d' ],
    [ 'A [link](x.md) here',      'a-link-here' ],
    [ "Gr\xc3\xb6\xc3\x9fe",      "gr\xc3\xb6\xc3\x9fe" ];
is(join(' ', sort keys %{ Links::anchors("# A\n## A\n```\n# B\n```\nC\n===\n<a id=\"d\"></a>\n") }), 'a a-1 c d', 'headings that repeat, code, underlined, explicit');

# Paths.
is(Links::resolve('docs/a/b.md', '../c.md'), 'docs/c.md', 'a relative path');
is(Links::resolve('docs/b.md', './x/'),      'docs/x',    'a folder');
is(Links::resolve('b.md', '../x'),           undef,       'out of the tree');

sub dead {
    my ($text, %files) = @_;
    my $tree = tree('docs/a.md' => $text, 'README.md' => "# Redoubt\n\n## Try it\n", 'crates/base/x/src/lib.rs' => '', %files);
    my ($status, $output) = run_in($tree, $links, '--root', '.');
    is($status, $output =~ m{^docs/}m ? 1 : 0, "exit status for: $text");
    return join ' ', map { /^docs\/a\.md:(\d+): (.*): no such / ? "$1:$2" : /^docs\/a\.md:(\d+): (.*): leads/ ? "$1:$2" : () } split /\n/, $output;
}

is(dead($_), '', "alive: $_") for
    "# A\n\n[x](../README.md) [y](../README.md#try-it) [z](#a) [w](https://example.org/none) [v](../crates/base/x)",
    "`crates/base/x/src/lib.rs` and `crates/base/x/` and `crates/base/x/src/lib.rs:12`",
    "`crates/{a,b}`, `crates/NAME/*.rs`, `crates/NAME/a.rs`, `cargo test crates/none`, `docs`",
    "```\n[x](none.md)\n```\n`[x](none.md)`",
    "[x][r]\n\n[r]: ../README.md\n";
is(dead("one\n[x](none.md)"),                       '2:none.md',               'a missing file');
is(dead("[x\ny](../README.md#none)"),               '1:../README.md#none',     'a missing heading, over two lines');
is(dead("[x](#none)"),                              '1:#none',                 'a missing heading of the same file');
is(dead("[x](../../y)"),                            '1:../../y',               'out of the tree');
is(dead("`crates/base/none.rs` [x](../README.md)"), '1:crates/base/none.rs',   'a missing path in backticks');
is(dead("![x](none.svg)"),                          '1:none.svg',              'a missing picture');
is(dead("[x][r]"),                                  '1:#[r]',                  'a reference without a definition');
is(dead("| [x](none.md) |"),                        '1:none.md',               'a link in a table');

# Lists of pages.
sub unlisted {
    my ($status, $output) = run_in(tree(@_), $links, '--root', '.');
    my $found = join ' ', $output =~ /^(\S+): not in /mg;
    is($status, $found eq '' ? 0 : 1, "exit status with unlisted: $found");
    return $found;
}
is(unlisted('docs/SUMMARY.md' => "- [A](a.md)\n- [B](b/c.md#d)\n", 'docs/a.md' => "# A\n", 'docs/b/c.md' => "# D\n\n## d\n"), '', 'all pages listed');
is(unlisted('docs/SUMMARY.md' => "`b.md`\n", 'docs/b.md' => "# B\n"), 'docs/b.md',             'a page that is not listed');
is(unlisted('lab/README.md'   => "# Lab\n",  'lab/2026-01-01-x.md' => "# X\n"), 'lab/2026-01-01-x.md', 'a report that is not listed');

my ($status) = run_in('.', $links, '--wrong');
is($status, 2, 'wrong use');
($status) = run_in('.', $links, '--help');
is($status, 0, 'help');

done();
