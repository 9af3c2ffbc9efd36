// What a release needs beside the broker's own modules, kept away from those.
module github.com/faisca/fila/tools/sbom

go 1.26.0

require github.com/CycloneDX/cyclonedx-go v0.12.0
