<?php

namespace App;

final class Work extends Message
{
}
