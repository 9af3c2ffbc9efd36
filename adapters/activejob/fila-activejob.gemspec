# frozen_string_literal: true

Gem::Specification.new do |spec|
  spec.name = "fila-activejob"
  spec.version = "0.0.0" # make release-adapters puts in the version of the release
  spec.summary = "Active Job on the message broker Fila: fair tenants, throttles, leases"
  spec.description = "An adapter of Active Job on Fila, and a worker that runs the jobs, in Rails and without it."
  spec.authors = ["The Fila authors"]
  spec.license = "Apache-2.0"
  spec.homepage = "https://github.com/faisca/fila/blob/main/adapters/activejob/README.md"
  spec.metadata = {
    "source_code_uri" => "https://github.com/faisca/fila/tree/main/adapters/activejob",
    "documentation_uri" => spec.homepage,
    "changelog_uri" => "https://github.com/faisca/fila/blob/main/CHANGELOG.md",
    "bug_tracker_uri" => "https://github.com/faisca/fila/issues",
    "rubygems_mfa_required" => "true"
  }
  spec.required_ruby_version = ">= 3.0"
  spec.files = Dir["lib/**/*.rb", "exe/*", "README.md", "LICENSE"].sort
  spec.bindir = "exe"
  spec.executables = ["fila-activejob"]
  spec.add_dependency "activejob", ">= 6.1"
  spec.add_dependency "redis", ">= 4.2"
end
