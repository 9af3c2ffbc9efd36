<?php

/* A worker of Messenger on its transport for Fila beside one on that for Redis. */

namespace Speed;

use Fila\Messenger\FilaTransportFactory;
use Psr\Log\NullLogger;
use Symfony\Bundle\FrameworkBundle\Console\Application;
use Symfony\Bundle\FrameworkBundle\FrameworkBundle;
use Symfony\Component\Config\Loader\LoaderInterface;
use Symfony\Component\Console\Input\ArgvInput;
use Symfony\Component\DependencyInjection\ContainerBuilder;
use Symfony\Component\HttpKernel\Kernel;

require __DIR__.'/../symfony/tests/app/autoload.php';
require_once 'Symfony/Component/Messenger/Bridge/Redis/autoload.php';

final class Note
{
}

final class Handler
{
    public function __invoke(Note $note): void
    {
        file_put_contents(getenv('NOTES'), '.', \FILE_APPEND);
    }
}

final class App extends Kernel
{
    public function registerBundles(): iterable
    {
        return [new FrameworkBundle()];
    }

    public function registerContainerConfiguration(LoaderInterface $loader): void
    {
        $loader->load(function (ContainerBuilder $container) {
            $container->loadFromExtension('framework', [
                'secret' => 'none', 'http_method_override' => false,
                'messenger' => ['transports' => ['async' => '%env(URL)%/async'], 'routing' => [Note::class => 'async']],
            ]);
            $container->register('logger', NullLogger::class);
            $container->register(FilaTransportFactory::class)->setAutoconfigured(true);
            $container->register(Handler::class)->addTag('messenger.message_handler');
            $container->setAlias('bus', 'messenger.default_bus')->setPublic(true);
        });
    }

    public function getCacheDir(): string
    {
        return getenv('CACHE');
    }

    public function getLogDir(): string
    {
        return getenv('CACHE');
    }
}

$kernel = new App('prod', false);
if ($jobs = (int) ($argv[2] ?? 0)) {
    $kernel->boot();
    while ($jobs--) {
        $kernel->getContainer()->get('bus')->dispatch(new Note());
    }
    exit;
}
(new Application($kernel))->run(new ArgvInput(['console', 'messenger:consume', 'async', '--sleep=0', '--quiet']));
