#!/usr/bin/env perl
# worker.pl: does jobs until SIGTERM or Ctrl-C, with Redis.pm.
use strict;
use warnings;
use Redis;
use Time::HiRes qw(sleep time);

my $block_ms = 2000;    # how long it may take to see that it is to stop
my $queue    = $ENV{FILA_QUEUE}    // 'jobs';
my $lease_ms = $ENV{FILA_LEASE_MS} // 30_000;

my $stopping = 0;
$SIG{TERM} = $SIG{INT} = sub { $stopping = 1 };
$| = 1;

my $redis;

sub fila {
    my $command = shift;
    $redis //= Redis->new(
        server       => ($ENV{FILA_HOST} // '127.0.0.1') . ':' . ($ENV{FILA_PORT} // 5555),
        read_timeout => $block_ms / 1000 + 5,    # longer than any call may take
    );
    return $redis->$command(@_);
}

# The work says that it goes on: $keep extends the lease when it is time to.
sub work {
    my ($job, $keep) = @_;
    my ($verb, $rest) = split ' ', $job, 2;
    if ($verb eq 'say') { print "$rest\n" }
    elsif ($verb eq 'sleep') {
        my $end = time + $rest;
        while (time < $end) { sleep 0.1; $keep->() }
    }
    else { die "$rest\n" }
}

# Does the job of a leased message, and says what became of it.
sub handle {
    my ($receipt, $job) = @_;
    my $extended = time;
    my $keep     = sub {
        return if time - $extended < $lease_ms / 3000;
        fila('FILA.EXTEND', $queue, $receipt, $lease_ms);
        $extended = time;
    };
    return fila('FILA.ACK', $queue, $receipt) if eval { work($job, $keep); 1 };
    chomp(my $error = $@);
    fila('FILA.NACK', $queue, $receipt, ERROR => $error);
}

until ($stopping) {
    next if eval {
        handle(@$_) for fila('FILA.LEASE', $queue, BLOCK => $block_ms, VISIBILITY => $lease_ms);
        1;
    };
    last if $stopping;
    if ($@ =~ /^\[FILA\.LEASE\] NOQUEUE /) {
        warn "the queue does not exist yet: $@";
    }
    else {
        die $@ if $@ =~ /^\[/;    # the broker's own
        undef $redis;
        warn "the broker is away: $@";
    }
    sleep 1;
}
