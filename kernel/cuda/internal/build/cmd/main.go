// Command cmd compiles kernel/cuda/src into kernel/cuda/images/data. scripts/cuda-images.sh fetches the compiler and starts it.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/goatnote-inc/robocache/kernel/cuda/images"
	"github.com/goatnote-inc/robocache/kernel/cuda/internal/build"
	"github.com/goatnote-inc/robocache/kernel/cuda/internal/nvrtc"
)

func main() {
	library := flag.String("nvrtc", ".build/nvrtc/nvidia/cuda_nvrtc/lib/libnvrtc.so.12", "libnvrtc")
	src := flag.String("src", "kernel/cuda/src", "sources")
	out := flag.String("out", "kernel/cuda/images/data", "where images go")
	force := flag.Bool("f", false, "compile also what has not changed")
	flag.Parse()
	if err := run(*library, *src, *out, *force); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(library, src, out string, force bool) error {
	c, err := nvrtc.Find(library)
	if err != nil {
		return err
	}
	names, err := build.Names(src)
	if err != nil {
		return err
	}
	keep := map[string]bool{}
	for _, name := range names {
		keep[name+".json"], keep[name+".zst"] = true, true
		s, err := build.Read(src, name)
		if err != nil {
			return err
		}
		old := images.Manifest{}
		if b, err := os.ReadFile(filepath.Join(out, name+".json")); err == nil && json.Unmarshal(b, &old) == nil && old.Hash == s.Hash() && !force {
			continue
		}
		begin := time.Now()
		m, packed, err := s.All(c)
		if err != nil {
			return err
		}
		if err := build.Write(out, m, packed); err != nil {
			return err
		}
		total := 0
		for _, i := range m.Images {
			total += i.Size
		}
		fmt.Printf("%s: %d kernels, %d bytes, packed %d, %.1f s\n", name, len(m.Kernels), total, len(packed), time.Since(begin).Seconds())
	}
	// Images of a source that is gone.
	files, err := os.ReadDir(out)
	for _, f := range files {
		if err == nil && !keep[f.Name()] {
			err = os.Remove(filepath.Join(out, f.Name()))
		}
	}
	return err
}
