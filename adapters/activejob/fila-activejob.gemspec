# frozen_string_literal: true

Gem::Specification.new do |spec|
  spec.name = "fila-activejob"
  spec.version = "0.1.0"
  spec.summary = "Active Job on Fila: fair tenants, throttles, leases"
  spec.authors = ["The Fila authors"]
  spec.license = "Apache-2.0"
  spec.required_ruby_version = ">= 3.0"
  spec.files = Dir["lib/**/*.rb", "exe/*", "README.md"]
  spec.bindir = "exe"
  spec.executables = ["fila-activejob"]
  spec.add_dependency "activejob", ">= 6.1"
  spec.add_dependency "redis", ">= 4.2"
end
