// Package build compiles the images of kernel/cuda/images/data from the sources of kernel/cuda/src.
// A test of package images compares them, and with -update writes them (scripts/cuda-images.sh).
//
// The options are those that the bits of a result depend on. With -fmad=false the compiler never
// fuses a·b+c. A kernel therefore computes what its source says, as the reference in Go and the
// simulator do, on every architecture. If the contract requires an fma, the source calls __fmaf_rn.
// Because -use_fast_math is not set, division and square root are IEEE, and subnormal numbers are
// kept.
package build

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/goatnote-inc/robocache/kernel/cuda/images"
)

// Options are the options of every image, except the architecture.
var Options = []string{"-std=c++17", "-fmad=false", "-default-device"}

// Targets are the architectures, machine code first and PTX last.
var Targets = []images.Entry{
	{Arch: 80},
	{Arch: 86},
	{Arch: 89},
	{Arch: 90},
	{Arch: 100},
	{Arch: 80, PTX: true},
}

// Source is a .cu file with the headers that it includes.
type Source struct {
	Name    string // for example fuse
	Text    string
	Headers map[string]string // keyed by the name in the #include line
}

// include matches an #include "…" line.
var include = regexp.MustCompile(`(?m)^\s*#\s*include\s*"([^"]+)"`)

// Read reads a source file and the headers that it includes with #include "…".
func Read(dir, name string) (*Source, error) {
	b, err := os.ReadFile(filepath.Join(dir, name+".cu"))
	if err != nil {
		return nil, err
	}
	s := &Source{Name: name, Text: string(b), Headers: map[string]string{}}
	for todo := []string{s.Text}; len(todo) > 0; todo = todo[1:] {
		for _, m := range include.FindAllStringSubmatch(todo[0], -1) {
			if _, seen := s.Headers[m[1]]; seen {
				continue
			}
			h, err := os.ReadFile(filepath.Join(dir, m[1]))
			if err != nil {
				return nil, err
			}
			s.Headers[m[1]] = string(h)
			todo = append(todo, string(h))
		}
	}
	return s, nil
}

// Names returns the names of the source files in a folder.
func Names(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.cu"))
	for i, f := range files {
		files[i] = strings.TrimSuffix(filepath.Base(f), ".cu")
	}
	sort.Strings(files)
	return files, err
}

// Hash returns the SHA-256 of everything that the compiler reads: the options, the source and its
// headers by name.
func (s *Source) Hash() string {
	h := sha256.New()
	fmt.Fprintln(h, Options, Targets)
	fmt.Fprintln(h, s.Name, len(s.Text))
	h.Write([]byte(s.Text))
	var names []string
	for n := range s.Headers {
		names = append(names, n)
	}
	sort.Strings(names)
	for _, n := range names {
		fmt.Fprintln(h, n, len(s.Headers[n]))
		h.Write([]byte(s.Headers[n]))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// kernels matches the entry point of a kernel in PTX.
var kernels = regexp.MustCompile(`(?m)^\s*\.visible \.entry (\w+)\(`)

// Compile compiles one image.
func (s *Source) Compile(c *Compiler, target images.Entry, more ...string) ([]byte, error) {
	arch := fmt.Sprintf("--gpu-architecture=sm_%d", target.Arch)
	if target.PTX {
		arch = fmt.Sprintf("--gpu-architecture=compute_%d", target.Arch)
	}
	options := append(append([]string{arch}, Options...), more...)
	return c.Compile(s.Name+".cu", s.Text, s.Headers, options, target.PTX)
}

// All compiles all images of a source.
func (s *Source) All(c *Compiler) (*images.Manifest, []byte, error) {
	version, err := c.Version()
	if err != nil {
		return nil, nil, err
	}
	m := &images.Manifest{Source: s.Name, Hash: s.Hash(), NVRTC: version, Options: Options}
	var packed bytes.Buffer
	z, err := zstd.NewWriter(
		&packed,
		zstd.WithEncoderLevel(zstd.SpeedBestCompression),
		zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(8<<20),
	)
	if err != nil {
		return nil, nil, err
	}
	for _, t := range Targets {
		b, err := s.Compile(c, t)
		if err != nil {
			return nil, nil, err
		}
		if t.PTX {
			for _, k := range kernels.FindAllSubmatch(b, -1) {
				m.Kernels = append(m.Kernels, string(k[1]))
			}
		}
		t.Size = len(b)
		m.Images = append(m.Images, t)
		if _, err := z.Write(b); err != nil {
			return nil, nil, err
		}
	}
	sort.Strings(m.Kernels)
	err = z.Close()
	return m, packed.Bytes(), err
}

// Update compiles the images of changed sources in a folder, or of all sources, and deletes the
// images of sources that no longer exist.
func Update(src, out string, c *Compiler, all bool, say func(format string, args ...any)) error {
	names, err := Names(src)
	if err != nil {
		return err
	}
	keep := map[string]bool{}
	for _, name := range names {
		keep[name+".json"], keep[name+".zst"] = true, true
		s, err := Read(src, name)
		if err != nil {
			return err
		}
		old := images.Manifest{}
		if b, err := os.ReadFile(filepath.Join(out, name+".json")); err == nil &&
			json.Unmarshal(b, &old) == nil && old.Hash == s.Hash() && !all {
			continue
		}
		begin := time.Now()
		m, packed, err := s.All(c)
		if err != nil {
			return err
		}
		b, err := json.MarshalIndent(m, "", "\t")
		if err := errors.Join(err,
			os.WriteFile(filepath.Join(out, name+".json"), append(b, '\n'), 0o644),
			os.WriteFile(filepath.Join(out, name+".zst"), packed, 0o644)); err != nil {
			return err
		}
		say(
			"%s: %d kernels, packed %d bytes, %.1f s",
			name,
			len(m.Kernels),
			len(packed),
			time.Since(begin).Seconds(),
		)
	}
	files, err := os.ReadDir(out)
	for _, f := range files {
		if err == nil && !keep[f.Name()] {
			err = os.Remove(filepath.Join(out, f.Name()))
		}
	}
	return err
}
