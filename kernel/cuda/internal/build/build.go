// Package build makes the images of kernel/cuda/images/data from the sources of kernel/cuda/src.
//
// The options say what the bits of a result depend on. -fmad=false: a·b+c is never fused by the compiler, so that a kernel computes what its
// source says, as the reference in Go, the simulator and every architecture do; where the contract says fma, the source does too
// (__fmaf_rn). There is no -use_fast_math: division and square root are IEEE, subnormal numbers are kept.
package build

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/goatnote-inc/robocache/kernel/cuda/images"
	"github.com/goatnote-inc/robocache/kernel/cuda/internal/nvrtc"
)

// Options are the options of every image, but for the architecture.
var Options = []string{"-std=c++17", "-fmad=false", "-default-device"}

// Targets are the architectures: machine code first, PTX last.
var Targets = []images.Entry{{Arch: 80}, {Arch: 86}, {Arch: 89}, {Arch: 90}, {Arch: 100}, {Arch: 80, PTX: true}}

// Source is a .cu file with the headers that it includes.
type Source struct {
	Name    string // fuse
	Text    string
	Headers map[string]string // by the name that they are included by
}

var include = regexp.MustCompile(`(?m)^\s*#\s*include\s*"([^"]+)"`)

// Read reads a source file and, by its #include "…" lines, the headers beside it.
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

// Names are the source files of a folder.
func Names(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.cu"))
	for i, f := range files {
		files[i] = strings.TrimSuffix(filepath.Base(f), ".cu")
	}
	sort.Strings(files)
	return files, err
}

// Hash is of all that the compiler reads: the options, the source and its headers by name.
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

var kernels = regexp.MustCompile(`(?m)^\s*\.visible \.entry (\w+)\(`)

// Compile makes one image.
func (s *Source) Compile(c *nvrtc.Compiler, target images.Entry, more ...string) ([]byte, error) {
	arch := fmt.Sprintf("--gpu-architecture=sm_%d", target.Arch)
	if target.PTX {
		arch = fmt.Sprintf("--gpu-architecture=compute_%d", target.Arch)
	}
	options := append(append([]string{arch}, Options...), more...)
	return c.Compile(s.Name+".cu", s.Text, s.Headers, options, target.PTX)
}

// All makes the images of a source.
func (s *Source) All(c *nvrtc.Compiler) (*images.Manifest, []byte, error) {
	version, err := c.Version()
	if err != nil {
		return nil, nil, err
	}
	m := &images.Manifest{Source: s.Name, Hash: s.Hash(), NVRTC: version, Options: Options}
	var packed bytes.Buffer
	z, err := zstd.NewWriter(&packed, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(8<<20))
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

// Write puts images into a folder.
func Write(dir string, m *images.Manifest, packed []byte) error {
	b, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, m.Source+".json"), append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, m.Source+".zst"), packed, 0o644)
}
