// Command release makes man pages of the verbs, and a software bill of materials (SBOM) of a binary.
// scripts/release.sh runs it from the repository's root. It is not shipped.
//
//	release man DIR VERSION
//	release sbom BINARY VERSION [PART.built ...]    CycloneDX 1.6, to stdout
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra/doc"

	"github.com/goatnote-inc/robocache/internal/cli"
)

func main() {
	var err error
	switch {
	case len(os.Args) == 4 && os.Args[1] == "man":
		err = writeManPages(os.Args[2], os.Args[3])
	case len(os.Args) >= 4 && os.Args[1] == "sbom":
		err = writeSBOM(os.Args[2], os.Args[3], os.Args[4:])
	default:
		err = fmt.Errorf("expected man DIR VERSION, or sbom BINARY VERSION [PART.built ...]")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// writeManPages writes one man page per verb to dir.
func writeManPages(dir, version string) error {
	root := cli.Command(version)
	root.DisableAutoGenTag = true
	var seconds int64
	// A fixed date makes the same source give the same bytes.
	_, _ = fmt.Sscan(os.Getenv("SOURCE_DATE_EPOCH"), &seconds)
	day := time.Unix(seconds, 0).UTC()
	return doc.GenManTree(
		root,
		&doc.GenManHeader{
			Title:   "ROBOCACHE",
			Section: "1",
			Source:  "robocache " + version,
			Manual:  "robocache",
			Date:    &day,
		},
		dir,
	)
}

type component struct {
	Type     string    `json:"type"`
	Ref      string    `json:"bom-ref,omitempty"`
	Name     string    `json:"name"`
	Version  string    `json:"version"`
	PURL     string    `json:"purl,omitempty"`
	Licences []licence `json:"licenses,omitempty"`
}

type licence struct {
	Expression string `json:"expression"`
}

// nativeLicences maps native parts of a binary, which no Go module lists, to their licences. The
// keys are names of Debian source packages (docs/dev/dependencies.md).
var nativeLicences = map[string]string{
	"ffmpeg":        "LGPL-2.1-or-later",
	"dav1d":         "BSD-2-Clause",
	"libjpeg-turbo": "IJG AND BSD-3-Clause",
	"libdeflate":    "MIT",
	"libzstd":       "BSD-3-Clause",
}

// embedded lists the foreign files that our own modules embed.
var embedded = []component{
	{
		Type:     "library",
		Name:     "libjxl",
		Version:  "as built for WebAssembly: video/jpegxl/data",
		Licences: []licence{{"BSD-3-Clause"}},
	},
	{
		Type:     "library",
		Name:     "uplot",
		Version:  "1.6.32",
		PURL:     "pkg:npm/uplot@1.6.32",
		Licences: []licence{{"MIT"}},
	},
}

// sourceLine matches the Debian source of a native part in its record.
var sourceLine = regexp.MustCompile(`(?m)^source (\S+)_(\S+)$`)

// writeSBOM lists the modules of a Go binary and the native parts whose records are given.
func writeSBOM(binary, version string, parts []string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	list := append([]component{}, embedded...)
	list = append(
		list,
		component{
			Type:     "library",
			Name:     "std",
			Version:  strings.TrimPrefix(info.GoVersion, "go"),
			PURL:     "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go"),
			Licences: []licence{{"BSD-3-Clause"}},
		},
	)
	for _, d := range info.Deps {
		text, err := licenceOf(d)
		if err != nil {
			return err
		}
		list = append(
			list,
			component{
				Type:     "library",
				Name:     d.Path,
				Version:  d.Version,
				PURL:     "pkg:golang/" + d.Path + "@" + d.Version,
				Licences: []licence{{text}},
			},
		)
	}
	for _, p := range parts {
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		for _, m := range sourceLine.FindAllStringSubmatch(string(b), -1) {
			if nativeLicences[m[1]] == "" {
				return fmt.Errorf("%s: %s has no licence in the table of scripts/release", p, m[1])
			}
			list = append(
				list,
				component{
					Type:    "library",
					Name:    m[1],
					Version: m[2],
					PURL: "pkg:deb/debian/" + m[1] + "@" + strings.ReplaceAll(
						m[2],
						"+",
						"%2B",
					) + "?arch=source",
					Licences: []licence{{nativeLicences[m[1]]}},
				},
			)
		}
	}
	for i := range list {
		list[i].Ref = list[i].Name + "@" + list[i].Version
	}
	e := json.NewEncoder(os.Stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(map[string]any{
		"bomFormat":   "CycloneDX",
		"specVersion": "1.6",
		"version":     1,
		"components":  list,
		"metadata": map[string]any{
			"component": component{
				Type:     "application",
				Ref:      "robocache",
				Name:     filepath.Base(binary),
				Version:  version,
				Licences: []licence{{"Apache-2.0"}},
			},
		},
	})
}

// licenceOf returns the SPDX expression of a module's licence files. Several licences are joined
// with AND.
func licenceOf(m *debug.Module) (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", m.Path).Output()
	if err != nil {
		return "", fmt.Errorf("%s: go list: %w", m.Path, err)
	}
	files, _ := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "LICEN[CS]E*"))
	text := ""
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		text += strings.Join(strings.Fields(string(b)), " ") + " "
	}
	var found []string
	add := func(id string, is bool) {
		if is {
			found = append(found, id)
		}
	}
	has := func(words string) bool { return strings.Contains(text, words) }
	notice := has("The above copyright notice and this permission")
	add("Apache-2.0", has("Apache License"))
	add("MIT", has("Permission is hereby granted, free of charge") && notice)
	add("MIT-0", has("Permission is hereby granted, free of charge") && !notice)
	add("ISC", has("Permission to use, copy, modify, and distribute this software for any purpose"))
	add("BSD-3-Clause", has("Neither the name"))
	add(
		"BSD-2-Clause",
		has("Redistributions in binary form must reproduce") && !has("Neither the name"),
	)
	if found == nil {
		return "", fmt.Errorf(
			"%s %s: unknown licence text in %v",
			m.Path,
			m.Version,
			files,
		)
	}
	return strings.Join(found, " AND "), nil
}
