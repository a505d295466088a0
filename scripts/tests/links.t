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
    my $tree = tree('docs/a.md' => $text, 'README.md' => "# Redoubt\n\n## Try it\n", 'crates/base/x/src/lib.rs' => '', 'docs/a b.md' => '', %files);
    my ($status, $output) = run_in($tree, $links, '--root', '.');
    is($status, $output =~ m{^docs/}m ? 1 : 0, "exit status for: $text");
    return join ' ', map { /^docs\/a\.md:(\d+): (.*): no such / ? "$1:$2" : /^docs\/a\.md:(\d+): (.*): leads/ ? "$1:$2" : () } split /\n/, $output;
}

is(dead($_), '', "alive: $_") for
    "# A\n\n[x](../README.md) [y](../README.md#try-it) [z](#a) [w](https://example.org/none) [v](../crates/base/x)",
    "`crates/base/x/src/lib.rs` and `crates/base/x/` and `crates/base/x/src/lib.rs:12`",
    "`crates/{a,b}`, `crates/NAME/*.rs`, `crates/NAME/a.rs`, `cargo test crates/none`, `docs`",
    "```\n[x](none.md)\n```\n`[x](none.md)`",
    "[x][r]\n\n[r]: ../README.md\n",
    "[Some Text][] and [some\ntext]\n\n[some text]: ../README.md\n",
    "<a href=\"../README.md\">x</a> <img src='../README.md' alt=x> <a href=https://example.org/x>y</a>",
    "[x](<a b.md>) [x](../docs/a%20b.md)",
    "- [ ] open\n- [x] done\n\nAn array a[i], a `[name]`, an escaped \\\\[name], [--stage STAGE], [a|b] and a note[1].\n\n    redoubt run [OPTIONS]",
    "[![x](../README.md)](../README.md)";
is(dead("one\n[x](none.md)"),                       '2:none.md',               'a missing file');
is(dead("[x\ny](../README.md#none)"),               '1:../README.md#none',     'a missing heading, over two lines');
is(dead("[x](#none)"),                              '1:#none',                 'a missing heading of the same file');
is(dead("[x](../../y)"),                            '1:../../y',               'out of the tree');
is(dead("`crates/base/none.rs` [x](../README.md)"), '1:crates/base/none.rs',   'a missing path in backticks');
is(dead("![x](none.svg)"),                          '1:none.svg',              'a missing picture');
is(dead("[x][r]"),                                  '1:#[r]',                  'a reference without a definition');
is(dead("[r][]"),                                   '1:#[r]',                  'a short reference without a definition');
is(dead("See [the guide] for it."),                 '1:#[the guide]',          'a text in brackets without a target');
is(dead("<a class=x\nhref=\"none.md\">x</a>"),      '1:none.md',               'a link in HTML');
is(dead("<img src='none.svg'>"),                    '1:none.svg',              'a picture in HTML');
is(dead("[x](<no ne.md>)"),                         '1:no ne.md',              'a target with blanks');
is(dead("[x](none.md 'title')"),                    '1:none.md',               'a link with a title');
is(dead("[![x](none.svg)](../README.md)"),          '1:none.svg',              'a picture in a link');
is(dead("| [x](none.md) |"),                        '1:none.md',               'a link in a table');

# Links that leave docs/ in the book.
my $in_book = sub { return Links::for_book('docs/a/b.md', $_[0]) };
is($in_book->($_), $_, "stays in the book: $_") for
    "[x](../c.md#d) [y](c.md) [z](#e) [w](https://example.org) [v](../c.svg)\n",
    "`[x](../../README.md)`\n```\n[x](../../README.md)\n```\n";
is($in_book->("See [the\nreport](../../lab/x.md#y), and\n"),    "See the\nreport (`lab/x.md`), and\n", 'a link that leaves the book becomes text');
is($in_book->("[`README.md`](../../README.md) [x](../c.md)\n"), "`README.md` [x](../c.md)\n",          'a link whose text is its path');
my $source = tree('docs/SUMMARY.md' => "- [A](a.md)\n", 'docs/book.toml' => "[book]\n", 'docs/a.md' => "[x](../README.md)\n", 'docs/a.svg' => 's', 'README.md' => "# R\n");
my ($made, $told) = run_in($source, "$here/../book", '--root', '.', '--source-only');
is($made, 0, "the sources of the book are made: $told");
is((run_in($source, 'cat', 'target/book-source/a.md'))[1], "x (`README.md`)\n", 'with converted links');
is((run_in($source, 'cat', 'target/book-source/a.svg'))[1], 's', 'and with pictures');

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

# Tests that the table of invariants names.
my $table = "# A\n\n## Invariants\n\n| | invariant | enforced in | shown by |\n|---|---|---|---|\n| 1 | a | `not_a_test` | `page_is_whole`, `many_pages_are_whole`; `short_name`, `tests/x` |\n\n## B\n\n| 1 | a | b | `no_test_at_all` |\n";
my ($exit, $found) = run_in(tree('ARCHITECTURE.md' => $table, 'crates/a/tests/x.rs' => "#[test]\nfn page_is_whole() {}\n"), $links, '--root', '.');
is($exit, 1, "exit status with a missing test: $found");
is(join(' ', $found =~ /^(\S+) (\S+): no such test$/mg), 'ARCHITECTURE.md:7: many_pages_are_whole', 'a missing test');
($exit, $found) = run_in(tree('ARCHITECTURE.md' => $table, 'crates/a/tests/x.rs' => "fn page_is_whole() {}\nfn many_pages_are_whole() {}\n"), $links, '--root', '.');
is($exit, 0, "all tests exist: $found");

my ($status) = run_in('.', $links, '--wrong');
is($status, 2, 'wrong use');
($status) = run_in('.', $links, '--help');
is($status, 0, 'help');

done();
