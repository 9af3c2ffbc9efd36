// Sbom writes what a static binary of Fila was made of, as CycloneDX in JSON: the modules that the
// Go tool has recorded in it, Go's standard library, and the Debian packages whose libraries
// are linked into it, and the npm packages in its dashboard. Programs that an image has beside it add their modules.
//
//	sbom VERSION PACKAGES NPM BINARY [BESIDE ...] > fila.cdx.json
//
// PACKAGES has a line for each package: name, version, source package; NPM has one
// for each that begins with "npm:": name, version, licence. The time is
// SOURCE_DATE_EPOCH, so the same input gives the same bytes.
package main

import (
	"bufio"
	"cmp"
	"debug/buildinfo"
	"fmt"
	"net/url"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if len(os.Args) < 5 {
		fmt.Fprintln(os.Stderr, "usage: sbom VERSION PACKAGES NPM BINARY [BESIDE ...]")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5:]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func write(version, packages, npm, binary string, beside []string) error {
	epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	goos, arch := "", ""
	for _, s := range info.Settings {
		switch s.Key {
		case "GOOS":
			goos = s.Value
		case "GOARCH":
			arch = s.Value
		}
	}
	components := []cdx.Component{library("std", strings.TrimPrefix(info.GoVersion, "go"), "pkg:golang/std@"+strings.TrimPrefix(info.GoVersion, "go"), "BSD-3-Clause")}
	modules, err := modulesOf(info, beside)
	if err != nil {
		return err
	}
	components = append(components, modules...)
	debian, err := debianPackages(packages, arch)
	if err != nil {
		return err
	}
	components = append(components, debian...)
	inDashboard, err := npmPackages(npm)
	if err != nil {
		return err
	}
	components = append(components, inDashboard...)

	bom := cdx.NewBOM()
	root := cdx.Component{
		BOMRef: "pkg:golang/" + info.Main.Path + "@v" + version, Type: cdx.ComponentTypeApplication, Name: "fila", Version: version,
		Description: "Message broker that speaks the Redis protocol, for " + goos + "/" + arch, PackageURL: "pkg:golang/" + info.Main.Path + "@v" + version,
		Licenses: &cdx.Licenses{{License: &cdx.License{ID: "AGPL-3.0-only"}}},
	}
	bom.Metadata = &cdx.Metadata{Timestamp: time.Unix(epoch, 0).UTC().Format(time.RFC3339), Component: &root}
	bom.Components = &components
	var refs []string
	for _, c := range components {
		refs = append(refs, c.BOMRef)
	}
	bom.Dependencies = &[]cdx.Dependency{{Ref: root.BOMRef, Dependencies: &refs}}
	return cdx.NewBOMEncoder(os.Stdout, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
}

// modulesOf returns the modules of a binary and of the programs beside it, each version once. A program beside it is
// itself a module of Fila, whose version is that of the release.
func modulesOf(info *buildinfo.BuildInfo, beside []string) ([]cdx.Component, error) {
	deps := slices.Clone(info.Deps)
	for _, path := range beside {
		other, err := buildinfo.ReadFile(path)
		if err != nil {
			return nil, err
		}
		deps = append(deps, other.Deps...)
	}
	slices.SortFunc(deps, func(a, b *debug.Module) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Version, b.Version))
	})
	var all []cdx.Component
	for i, m := range deps {
		if i == 0 || m.Path != deps[i-1].Path || m.Version != deps[i-1].Version {
			all = append(all, library(m.Path, m.Version, "pkg:golang/"+m.Path+"@"+m.Version, ""))
		}
	}
	return all, nil
}

func library(name, version, purl, licence string) cdx.Component {
	c := cdx.Component{BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: name, Version: version, PackageURL: purl}
	if licence != "" {
		c.Licenses = &cdx.Licenses{{License: &cdx.License{ID: licence}}}
	}
	return c
}

func debianPackages(path, arch string) ([]cdx.Component, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []cdx.Component
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			return nil, fmt.Errorf("%s: a line has a name and a version, not %q", path, lines.Text())
		}
		name, version := fields[0], fields[1]
		all = append(all, library(name, version, fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s&distro=bookworm", name, url.QueryEscape(version), arch), ""))
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: there are no packages in it", path)
	}
	return all, nil
}

func npmPackages(path string) ([]cdx.Component, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []cdx.Component
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, "npm: ")
		if !ok {
			continue
		}
		fields := strings.Fields(rest)
		if len(fields) != 3 {
			return nil, fmt.Errorf("%s: behind npm: are a name, a version and a licence, not %q", path, rest)
		}
		all = append(all, library(fields[0], fields[1], "pkg:npm/"+fields[0]+"@"+fields[1], fields[2]))
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: there are no packages in it", path)
	}
	return all, nil
}
