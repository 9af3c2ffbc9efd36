# A hand with Redis or Redis::Fast: hand.pl Redis|Redis::Fast
use strict;
use warnings;

my $class = shift;
eval "require $class" or die $@;
$| = 1;
print $class->VERSION, "\n";

my %clients;

# A client whose reads end after so many seconds; undef is never. It connects again
# by itself, for a second, and sends its command again.
sub client {
    my $limit = shift;
    return $clients{ $limit // 'none' } //= $class->new(
        server    => "$ENV{FILA_HOST}:$ENV{FILA_PORT}",
        reconnect => 1, every => 100_000, read_timeout => $limit,
    );
}

sub show {
    my $v = shift;
    return '_' unless defined $v;
    return join ' ', '*' . @$v, map { show($_) } @$v if ref $v;
    return '$' . unpack 'H*', $v;
}

while (my $line = <STDIN>) {
    my ($block, @args) = split ' ', $line;
    my ($command, @rest) = map { pack 'H*', substr $_, 1 } @args;
    my $limit = $block eq '-' ? 5 : $block eq '0' ? undef : $block / 1000 + 5;
    # A name may contain a dot when the method is called through a variable.
    my $reply = eval { show(scalar client($limit)->$command(@rest)) };
    if (!defined $reply) {
        my $error = $@;
        $error =~ s/, at .*//s;
        $reply = ($error =~ /^\[/ ? '-' : '!') . unpack 'H*', $error;    # "[command] text" is the server's
    }
    print "$reply\n";
}
