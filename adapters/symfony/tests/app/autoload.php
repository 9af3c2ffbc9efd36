<?php

// The classes of Symfony, of the transport and of the tests. Debian has one autoload.php for each component.
if ($composer = getenv('AUTOLOAD')) {
    require $composer;
} else {
    foreach (['Bundle/FrameworkBundle', 'Component/Console', 'Component/Messenger', 'Component/Serializer', 'Component/PropertyAccess'] as $component) {
        require "/usr/share/php/Symfony/$component/autoload.php";
    }
    // Symfony 6 asks Composer which packages are there for development only. Without Composer none is.
    if (!class_exists(Composer\InstalledVersions::class)) {
        require __DIR__.'/InstalledVersions.php';
    }
}
spl_autoload_register(function (string $class) {
    foreach (['Fila\\Messenger\\' => __DIR__.'/../../src/', 'App\\' => __DIR__.'/', 'Tests\\' => __DIR__.'/../'] as $prefix => $directory) {
        if (str_starts_with($class, $prefix) && is_file($file = $directory.substr($class, strlen($prefix)).'.php')) {
            require $file;
        }
    }
});
