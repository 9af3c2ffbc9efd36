// What the site of documents is made with, kept away from the broker's own modules.
module github.com/faisca/fila/tools/site

go 1.26.0

require (
	github.com/alecthomas/chroma/v2 v2.27.0
	github.com/yuin/goldmark v1.7.13
)

require github.com/dlclark/regexp2/v2 v2.2.1 // indirect
