# frozen_string_literal: true

require "minitest/autorun"
%w[options jobs faults tenants batches].each { |name| require "test_#{name}" }
