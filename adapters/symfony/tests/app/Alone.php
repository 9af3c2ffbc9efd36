<?php

namespace App;

final class Alone extends Message
{
}
