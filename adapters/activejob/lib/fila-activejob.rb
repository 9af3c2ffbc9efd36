# frozen_string_literal: true

# What Bundler requires for the gem.
require "fila/active_job"
