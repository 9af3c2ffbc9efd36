// What makes the packages of the adapters, kept away from the broker's own modules.
module github.com/faisca/fila/tools/packages

go 1.26.0

require golang.org/x/mod v0.42.0
