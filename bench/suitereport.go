package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"

	"github.com/goatnote-inc/robocache"
)

// SuiteReport is what `bench load` writes.
type SuiteReport struct {
	Command string        `json:"command"`
	Results []PointResult `json:"results"`
}

// Write puts into dir: a JSON and a CSV file a rank, named as the original benchmark names them, merged ones where there are several
// ranks, load.{json,csv} with all rows, load.html, and its plots as PNG and SVG. Where there are several runners, each has a folder of its own for the files a rank.
func (r *SuiteReport) Write(dir string) error {
	runners := map[string]bool{}
	for _, p := range r.Results {
		runners[p.Merged.Runner] = true
	}
	var rows []*Keys
	for _, p := range r.Results {
		to := dir
		if len(runners) > 1 {
			to = filepath.Join(dir, p.Merged.Runner)
		}
		if err := os.MkdirAll(to, 0o755); err != nil {
			return robocache.At(err, robocache.Where{"file": to})
		}
		for _, k := range p.Keys {
			if err := writeRow(to, stem(k.Scenario, k.BatchSize, k.NumWorkers, fmt.Sprint(k.Rank), k.WorldSize), k); err != nil {
				return err
			}
		}
		if k := p.Merged; len(p.Keys) != 1 {
			if err := writeRow(to, stem(k.Scenario, k.BatchSize, k.NumWorkers, "merged", k.WorldSize), k); err != nil {
				return err
			}
		}
		rows = append(rows, p.Merged)
	}
	js, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "load.json"), append(js, '\n'), 0o644); err != nil {
		return robocache.At(err, robocache.Where{"file": dir})
	}
	if err := writeTable(filepath.Join(dir, "load.csv"), rows); err != nil {
		return err
	}
	return r.writePage(dir)
}

// writePage writes load.html, which needs no other file, and its plots as PNG files.
func (r *SuiteReport) writePage(dir string) error {
	for _, f := range r.figures() {
		b, err := f.png()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, f.Name+".png"), b, 0o644); err != nil {
			return robocache.At(err, robocache.Where{"file": dir})
		}
		if b, err = f.svg(); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, f.Name+".svg"), b, 0o644); err != nil {
			return robocache.At(err, robocache.Where{"file": dir})
		}
	}
	p, err := r.page()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := suitePage.Execute(&b, p); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "load.html"), b.Bytes(), 0o644); err != nil {
		return robocache.At(err, robocache.Where{"file": dir})
	}
	return nil
}

func writeRow(dir, name string, k *Keys) error {
	js, err := json.MarshalIndent(k, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path+".json", append(js, '\n'), 0o644); err != nil {
		return robocache.At(err, robocache.Where{"file": path + ".json"})
	}
	return writeTable(path+".csv", []*Keys{k})
}

func writeTable(path string, rows []*Keys) error {
	f, err := os.Create(path)
	if err != nil {
		return robocache.At(err, robocache.Where{"file": path})
	}
	if err := writeKeys(f, rows); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return robocache.At(err, robocache.Where{"file": path})
	}
	return nil
}

// Show is a figure that may not have been measured.
func Show(v any) string {
	r := reflect.ValueOf(v)
	if r.IsNil() {
		return "–"
	}
	if f, ok := v.(*float64); ok {
		return fmt.Sprintf("%.3g", *f)
	}
	return fmt.Sprint(r.Elem().Interface())
}
