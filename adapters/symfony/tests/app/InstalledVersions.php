<?php

namespace Composer;

// What Composer generates for an application, for packages that it has not installed: Debian's.
class InstalledVersions
{
    public static function isInstalled(string $package, bool $includeDevRequirements = true): bool
    {
        return false;
    }
}
