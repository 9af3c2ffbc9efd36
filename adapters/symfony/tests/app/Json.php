<?php

namespace App;

final class Json extends Message
{
}
