#!/usr/bin/env perl
# A candidate that is not Python: it speaks the protocol of docs/protocol.md on its standard input and output.
#
#     triu check --command 'perl examples/decoder.pl'
use strict;
use warnings;
use JSON::PP;

binmode STDIN;
binmode STDOUT;
my $json = JSON::PP->new->allow_nonref;

sub receive {
    read(STDIN, my $prefix, 12) == 12 or exit 0;
    my ($head, $body) = unpack('N Q>', $prefix);
    read(STDIN, my $header, $head);
    my $bytes = '';
    read(STDIN, $bytes, $body) if $body;
    return ($json->decode($header), $bytes);
}

sub answer {
    my ($answer, $bytes) = @_;
    my $header = $json->encode($answer);
    print pack('N Q>', length $header, length $bytes), $header, $bytes;
    STDOUT->flush;
}

# (T, T), True = blocked: no query sees a key after it.
sub causal_mask {
    my ($T) = @_;
    return join '', map { my $i = $_; map { pack 'C', $_ > $i ? 1 : 0 } 0 .. $T - 1 } 0 .. $T - 1;
}

while (1) {
    my ($request) = receive();
    my %answer = (id => $request->{id});
    my $bytes = '';
    if ($request->{op} eq 'open') {
        $answer{objects} = [ { name => 'build_causal_mask', params => ['T'], doc => 'True = blocked' } ];
    }
    elsif ($request->{op} eq 'build') {
        $answer{handle} = 0;
    }
    elsif ($request->{op} eq 'calls') {
        for my $call (@{ $request->{calls} }) {
            my $T = $call->{kwargs}{T} // $call->{args}[0];
            if ($T < 0) {
                push @{ $answer{answers} }, { error => { type => 'ValueError', message => "T is $T" } };
                next;
            }
            my %array = ('$' => 'array', dtype => 'bool', shape => [ $T, $T ], at => length $bytes);
            $bytes .= causal_mask($T);
            push @{ $answer{answers} }, { result => \%array };
        }
    }
    else {
        $answer{error} = { type => 'NotImplemented', message => "no operation $request->{op}" };
    }
    answer(\%answer, $bytes);
}
