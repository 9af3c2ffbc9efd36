<?php
// php producer.php KEY JOB...: enqueues jobs for a tenant, with phpredis.

require __DIR__ . '/fila.php';

$queue = getenv('FILA_QUEUE') ?: 'jobs';
$fila = connect(5);
fila($fila, 'FILA.QUEUE', 'CREATE', $queue, 'IFNOTEXISTS');
[, $key] = $argv;
foreach (array_slice($argv, 2) as $job) {
    echo fila($fila, 'FILA.ENQUEUE', $queue, $job, 'KEY', $key, 'HEADER', 'from', 'php'), "\n";
}
