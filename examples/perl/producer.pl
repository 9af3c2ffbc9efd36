#!/usr/bin/env perl
# producer.pl KEY JOB...: enqueues jobs for a tenant, with Redis.pm.
use strict;
use warnings;
use Redis;

my $queue = $ENV{FILA_QUEUE} // 'jobs';
my $redis = Redis->new(server => ($ENV{FILA_HOST} // '127.0.0.1') . ':' . ($ENV{FILA_PORT} // 5555));

# A command by its name: a method may have a dot in its name when it is called
# through a variable.
sub fila { my $command = shift; return $redis->$command(@_) }

fila('FILA.QUEUE', 'CREATE', $queue, 'IFNOTEXISTS');
my ($key, @jobs) = @ARGV;
print fila('FILA.ENQUEUE', $queue, $_, KEY => $key, HEADER => 'from', 'perl'), "\n" for @jobs;
