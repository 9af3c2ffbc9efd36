<?php

namespace App;

use Fila\Messenger\FilaTransportFactory;
use Psr\Log\NullLogger;
use Symfony\Bundle\FrameworkBundle\FrameworkBundle;
use Symfony\Component\Config\Loader\LoaderInterface;
use Symfony\Component\DependencyInjection\ContainerBuilder;
use Symfony\Component\DependencyInjection\Reference;
use Symfony\Component\HttpKernel\Kernel as BaseKernel;
use Symfony\Component\Messenger\Transport\Receiver\KeepaliveReceiverInterface;

/**
 * An application with Messenger, as the configuration of one names transports, retries and routes.
 */
final class Kernel extends BaseKernel
{
    public function registerBundles(): iterable
    {
        return [new FrameworkBundle()];
    }

    public function registerContainerConfiguration(LoaderInterface $loader): void
    {
        $loader->load($this->configure(...));
    }

    public function getCacheDir(): string
    {
        return getenv('CACHE');
    }

    public function getLogDir(): string
    {
        return getenv('CACHE');
    }

    private function configure(ContainerBuilder $container): void
    {
        $keepalive = interface_exists(KeepaliveReceiverInterface::class) ? '' : '&keepalive=1';
        $retry = ['max_retries' => 2, 'delay' => 50, 'multiplier' => 1];
        $container->loadFromExtension('framework', [
            'secret' => 'none',
            'http_method_override' => false,
            'serializer' => ['enabled' => true],
            'property_access' => true,
            'messenger' => [
                'transports' => [
                    'async' => [
                        'dsn' => "%env(FILA_URL)%/async?visibility=5000&block=200$keepalive",
                        'options' => ['create' => ['maxattempts' => 3]],
                        'retry_strategy' => $retry,
                        'failure_transport' => 'failed',
                    ],
                    'json' => [
                        'dsn' => '%env(FILA_URL)%/json',
                        'serializer' => 'messenger.transport.symfony_serializer',
                        'retry_strategy' => $retry,
                        'failure_transport' => 'failed_json',
                    ],
                    'alone' => ['dsn' => '%env(FILA_URL)%/alone', 'retry_strategy' => ['max_retries' => 0]],
                    'failed' => '%env(FILA_URL)%/failed',
                    'failed_json' => ['dsn' => '%env(FILA_URL)%/failed_json', 'serializer' => 'messenger.transport.symfony_serializer'],
                ],
                'routing' => [Work::class => 'async', Json::class => 'json', Alone::class => 'alone'],
            ],
        ]);
        $container->register('logger', NullLogger::class);
        $container->register(FilaTransportFactory::class)->setAutoconfigured(true);
        $container->register(Handler::class)->addArgument(new Reference('messenger.default_bus'))->addTag('messenger.message_handler', ['method' => 'work', 'handles' => Message::class]);
        $container->setAlias('bus', 'messenger.default_bus')->setPublic(true);
    }
}
