package Prose::Rules;

# The rules of docs/dev/style.md that a program can check. `check` takes a unit of Prose::Text and returns hits:
# { line, rule, excerpt, suggestion }. A rule must not match ordinary English; docs/dev/style.md has the figures.

use strict;
use warnings;
use Prose::Text ();

our $MAX_WORDS   = 40;
our $GOOD_WORDS  = 25;
our $MAX_NAME    = 60;
our $MAX_SUBJECT = 72;

# Where a clause begins: a sentence, or what follows a semicolon, a colon, a dash or a conjunction after a comma.
my $CLAUSE = qr/(?:^["'(]*|[;:]\s+|\s(?:-+|\xe2\x80[\x93\x94])\s+|\(|,\s+(?:and|but|or|so|yet|then|nor)\s+)/;
# Parts of the system that do not act like persons. A client, a user or a caller may well say something.
my $MACHINE = qr/(?:node|server|volume|member|library|thread|kernel|command|reader|parser|log|process|device|disk|drive|stack|connection|group|file|page|frame|table|stream|system|loader|service|link|socket|host|checker|model|write set|set|engine)s?/i;

# Words for persons. Rules about machines that act like persons leave these alone.
my $PERSON = qr/\b(?:[Yy]ou|users?|operators?|administrators?|admins?|DBAs?|persons?|people|developers?|maintainers?|authors?|customers?|colleagues?|reviewers?)\b/i;
# Participles: "the process believed to be the leader" says nothing of a machine that believes.
my $PASSIVE = qr/(?! (?:to|by|in)\b)/;
# Accepts the text before it as ordinary English; the search continues behind that text.
my $SKIP = qr/(*SKIP)(*FAIL)/;
# A person is informed, with at most five words between: accepted.
my $TOLD_PERSON = qr/$PERSON(?: (?!and\b|but\b|or\b|so\b)[\w']+){0,5}? (?:is|are|was|were|be|been|being|gets?|got) told\b$SKIP/;

# [rule, pattern, suggestion]. Patterns are tried on sentences, with inline code as one word.
my @SENTENCE_RULES = (
    [ 'clause-subject', qr/$CLAUSE(?:[Ww]ho|[Ww]hoever|[Ww]homever|[Ww]hatever(?! (?:the|its|their|your|\w+ing)\b[^,.;]{1,50},))\b(?!\?)/, 'start with a noun: the client, the caller, the process' ],
    [ 'clause-subject', qr/^["'(]*What(?!ever|[?!]| if\b| to\b|'s|\xe2\x80\x99s| about\b| follows\b)\b/, 'start with a noun: the thing itself' ],
    [ 'clause-subject', qr/^what(?= \w+ )(?! to\b)/, 'start with a noun: the thing itself' ],
    [ 'clause-subject', qr/(?:[;]\s+|,\s+(?:and|but|so)\s+)what\b(?! to\b)/, 'start with a noun: the thing itself' ],
    [ 'clause-subject', qr/\b(?:[Nn]obody|[Ss]omebody|[Ww]hoever)\b/, 'name the component or the person' ],
    [ 'clause-subject', qr/(?:^["'(]*|[;:]\s+|,\s+(?:and|but|or|so|yet|then|nor)\s+)(?:[Oo]ne|[Tt]hose) (?:that|who|which|whose|of which|with which|to which)\b/, 'start with a noun' ],
    [ 'clause-subject', qr/\b(?:if|while|since|because|until|than|unless|although) who\b/, 'start with a noun' ],
    [ 'clause-subject', qr/^["'(]*(?:Of|For|To|With|From) (?:what|whom|whose|one that)\b(?! I\b)/, 'start with a noun' ],
    [ 'machine-person', qr/\b(?:says?|said|saying) so\b/, 'reports it, logs it, returns an error' ],
    [ 'machine-person', qr/$TOLD_PERSON|\b(?:is|are|was|were|be|been|being|gets?|got) told\b/, 'receives, is notified, is informed' ],
    [ 'machine-person', qr/\b(?:is|are|was|were|been) (?:said(?! to\b)|heard|seen to(?= by\b|[.,;:]|$)|looked after)\b/, 'is reported, is received, is handled' ],
    [ 'machine-person', qr/$PERSON(?: [\w']+){0,2}? kn(?:ows?|ew) (?:of|nothing)\b$SKIP|\bkn(?:ows?|ew|own) (?:of|nothing)\b/, 'stores, has, supports' ],
    [ 'machine-person', qr/(?:^|\s)$MACHINE (?:says?|hears?|wants|thinks?|believes?|talks?|(?:said|heard|wanted|believed)$PASSIVE)\b/, 'reports, receives, requires, expects' ],
    [ 'machine-person', qr/\btakes? (?:it|them|this|that) for\b/, 'treats it as' ],
    [ 'machine-person', qr/\bhears? (?:from|of|it|them|that|each|nothing)\b/, 'receives' ],
    [ 'pronoun', qr/\b(?:[Hh]e|[Hh]im|[Hh]is|[Ss]he)\b(?!\/)/, 'it; or name the component', $PERSON ],
    [ 'pronoun', qr/^["'(]*(?:Of|With|For|To|From|By) (?:it|them)\b/, 'name the thing' ],
    [ 'pronoun', qr/\b(?:of|with|for|to|from|by) (?:it|them)\b[^.;]{1,60}\b(?:of|with|without|for|to|from|by) (?:it|them)\b/, 'name the thing instead of a second pronoun' ],
    [ 'of-chain', qr/\b(?:set|program|socket|call|queue|thread|option|variable|setting)s? of (?:epoll|XDP|AF_XDP|io_uring|TLS|FUSE|NFS|the kernel)\b/, 'a compound noun: epoll set, XDP program' ],
    [ 'of-chain', qr/(?:\bof (?:the |a |an |its |that |this |each |one )?[\w\x01]+ ){3}/, 'compound nouns instead of three times "of"' ],
);

# [pattern, what to write]: the table of terms.
my @TERMS = (
    [ qr/\banew\b/i,                                        'again, new, restart' ],
    [ qr/\b(?:mended|mends|mending)\b/i,                    'fixed' ],
    [ qr/\b(?:held|holds?|holding) (?:\w+ ){0,3}?(?:locks?|lease|leases|mutex|latch|position|lines?|grudges?|own) against\b$SKIP|\b(?:held|holds?|holding) (?:\w+ ){0,3}against\b/i, 'compared with, verified against' ],
    [ qr/\bin vain\b/i,                                     'EAGAIN, would block, without success' ],
    [ qr/\blongest wait\b/i,                                'timeout' ],
    [ qr/\b(?:alarm|light|lamp|LED|power|display|screen|fan|siren)s? (?:goes|went|has gone) on\b$SKIP|\b(?:goes|went|gone) on\b(?! (?:the|a|an|top|disk|line)\b)/i, 'continues, resumes' ],
    [ qr/\b(?:to|may|can|must|will|and|not) go on\b(?! (?:the|a|an|top|to)\b)/i, 'continue, resume' ],
    [ qr/\bput(?:s|ting)? (?:it |them |that |this )?aside\b|\bstate put aside\b/i, 'snapshot, set aside' ],
    [ qr/\b(?:processor|CPU's|processor's) times?\b/i,      'CPU time' ],
    [ qr/\bout of step\b/i,                                 'desynchronised' ],
    [ qr/(?<!other )(?<!one )(?<!by )(?<!at )(?<!in )(?<!to )(?<!free )\bhand on\b|\b(?:to|not|may|can|must|will|would) hand on\b|\bhand(?:s (?:it |them |that )?|ed (?:it |them |that )?|ing (?:it |them |that )?| it | them | that )on\b/i,    'forward' ],
    [ qr/\b(?:shut|shuts|stopped|ends?|ended|went down|goes down) (?:down )?in order\b(?! to\b)/i, 'clean shutdown' ],
    [ qr/\bto be had\b/i,                                   'available' ],
    [ qr/\b(?:waits?|waiting) (?:for )?its turn\b/i,        'standby, is queued' ],
    [ qr/\bchanges? of threads\b/i,                         'context switch' ],
    [ qr/\b(?:gives|gave|giving|given) way\b/i,             'victim, brute-force abort' ],
    [ qr/\bthose that are there\b|\broster\b/i,             'membership' ],
    [ qr/\bnetwork cards?\b/i,                              'NIC, interface' ],
    [ qr/\b(?:shares?|shared|whose|the|a|its) doors?\b/i,   'rendezvous socket' ],
    [ qr/\bthe one before\b(?! (?:it|that|this|them|last)\b)|\bwhat comes (?:next|after|then|before)\b/i, 'previous, next, following' ],
    [ qr/\b(?:gets?|got) its state\b|\bwhat it lacks\b/i,   'SST (full state transfer), IST (incremental)' ],
    [ qr/\b(?:looks?|looked|looking) after\b/i,             'intercept, handle' ],
    [ qr/\bnone (?:of them )?(?:any more|anymore)\b/i,      'no longer' ],
    [ qr/\btime-outs?\b/i,                                  'timeout' ],
);

# Most sentences hold none of them.
my $ANY_TERM = do { my $all = join '|', map { $_->[0] } @TERMS; qr/$all/ };

my $EMPTY_DOC = qr/^(?:See (?:the )?(?:module|modules|there|above|below|it)\b[^.]*\.?|As (?:the|its) name says\.?|As it says\.?)$/;
my $BAD_NAME  = qr/^(?:what|who|whoever|whatever|whom|whose|nobody|somebody|nor|those|one_that|one_who|one_which|one_whose|one_with|and|but|so)(?:_|\b)/;

sub check {
    my ($unit) = @_;
    return check_name($unit) if $unit->{kind} eq 'test';
    my @hits;
    if ($unit->{text} =~ $EMPTY_DOC && $unit->{kind} =~ /^(?:doc|help|comment)$/) {
        push @hits, hit($unit, 0, 'empty-doc', $unit->{text}, 'say it, or delete the comment');
        return @hits;
    }
    for my $sentence (sentences($unit->{text})) {
        my ($offset, $text) = @$sentence;
        push @hits, check_sentence($unit, $offset, $text);
    }
    if ($unit->{kind} eq 'message') {
        push @hits, hit($unit, 0, 'message-form', $unit->{text}, 'fails, is rejected, with the value')
            if $unit->{text} =~ /\b(?:cannot|can not) be(?=[.;,:]|$)/;
    }
    return @hits;
}

sub check_sentence {
    my ($unit, $offset, $text) = @_;
    my (@hits, %seen);
    my $question = $text =~ /\?["')]*\s*$/;
    for my $rule (@SENTENCE_RULES) {
        my ($name, $pattern, $suggestion, $unless) = @$rule;
        next if $name eq 'clause-subject' && $question;
        next if defined $unless && $text =~ $unless;
        next if $text !~ $pattern;
        # One habit that two patterns of a rule find is one hit.
        my ($from, $to) = ($-[0], $+[0]);
        next if grep { $from < $_->[1] && $to > $_->[0] } @{ $seen{$name} };
        push @{ $seen{$name} }, [ $from, $to ];
        push @hits, hit($unit, $offset + $from, $name, excerpt($text, $from, $to), $suggestion);
    }
    for my $term ($text =~ $ANY_TERM ? @TERMS : ()) {
        my ($pattern, $suggestion) = @$term;
        while ($text =~ /$pattern/g) {
            push @hits, hit($unit, $offset + $-[0], 'term', excerpt($text, $-[0], $+[0]), $suggestion);
        }
    }
    my $words = words($text);
    push @hits, hit($unit, $offset, 'long-sentence', excerpt($text, 0, 40), "$words words; split it (aim at $GOOD_WORDS, limit $MAX_WORDS)")
        if $words > $MAX_WORDS;
    return @hits;
}

sub check_name {
    my ($unit) = @_;
    my $name = $unit->{text};
    my @hits;
    push @hits, hit($unit, 0, 'test-name', $name, length($name) . " characters; at most $MAX_NAME") if length $name > $MAX_NAME;
    push @hits, hit($unit, 0, 'test-name', $name, 'subject_condition_expectation') if $name =~ $BAD_NAME;
    return @hits;
}

# The hits of a commit's subject: its length, and the rules for sentences.
sub check_subject {
    my ($subject) = @_;
    my $unit = { kind => 'commit', text => $subject, map => [ [ 0, 0 ] ], code => [] };
    my @hits = check_sentence($unit, 0, $subject);
    push @hits, hit($unit, 0, 'commit-subject', $subject, length($subject) . " characters; at most $MAX_SUBJECT")
        if length $subject > $MAX_SUBJECT;
    return @hits;
}

sub hit {
    my ($unit, $offset, $rule, $excerpt, $suggestion) = @_;
    $excerpt = Prose::Text::restore($unit, $excerpt);
    $excerpt = substr($excerpt, 0, 117) . '...' if length $excerpt > 120;
    return { line => Prose::Text::line_at($unit, $offset), kind => $unit->{kind}, rule => $rule, excerpt => $excerpt, suggestion => $suggestion };
}

sub excerpt {
    my ($text, $from, $to) = @_;
    my $start = $from > 20 ? $from - 20 : 0;
    $start = index($text, ' ', $start) + 1 if $start > 0 && index($text, ' ', $start) >= 0 && index($text, ' ', $start) < $from;
    my $end = $to + 30 < length $text ? $to + 30 : length $text;
    my $space = rindex($text, ' ', $end);
    $end = $space if $end < length $text && $space > $to;
    my $part = substr($text, $start, $end - $start);
    $part =~ s/^[^\x01]*?\d+\x01// if ($part =~ tr/\x01//) % 2 && $part !~ /^\x01/;
    return ($start > 0 ? '...' : '') . $part . ($end < length $text ? '...' : '');
}

sub words {
    my ($text) = @_;
    return scalar grep { /[A-Za-z0-9\x01]/ } split /\s+/, $text;
}

# [offset, text] of each sentence.
sub sentences {
    my ($text) = @_;
    my (@sentences, $start);
    $start = 0;
    while ($text =~ /[.!?]["')*]*\s+(?=["'(*]*[A-Z\x01])/g) {
        my $end = pos $text;
        next if substr($text, $start, $-[0] + 1 - $start) =~ /\b(?:e\.g|i\.e|etc|vs|cf|No|Nr|approx|resp)\.$/;
        push @sentences, [ $start, substr($text, $start, $end - $start) ];
        $start = $end;
    }
    push @sentences, [ $start, substr($text, $start) ] if $start < length $text;
    return @sentences;
}

1;
