package convert

import (
	"context"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// Formats lists the formats that can be written.
func Formats() []string {
	names := []string{"lerobot"}
	for _, n := range robocache.Formats() {
		if f, err := robocache.FormatNamed(n); err == nil && f.Write != nil && n != "lerobot" {
			names = append(names, n)
		}
	}
	sort.Strings(names)
	return names
}

// Writes says that a format can be written; else ErrUnsupported with those that can.
func Writes(name string) error {
	_, err := writer(name)
	return err
}

// writer gives a format that is written.
func writer(name string) (f robocache.Format, err error) {
	hint := "formats that are written: " + strings.Join(Formats(), ", ") + "; hdf5 is robomimic's layout"
	if name == "hdf5" {
		name = "robomimic"
	}
	f, err = robocache.FormatNamed(name)
	switch {
	case err != nil:
		return f, &robocache.Error{Class: robocache.ErrUnsupported, Op: "convert", Msg: "no format named " + strconv.Quote(name), Hint: hint}
	case f.Write == nil && name != "lerobot":
		return f, &robocache.Error{Class: robocache.ErrUnsupported, Op: "convert", Msg: "the format " + name + " is read, not written", Hint: hint}
	}
	return f, nil
}

// Write writes src at dst in a registered format, by the writer of that format (C7); "hdf5" is robomimic's layout. Of opt it takes Episodes, Keys, SkipBad, Threads,
// Progress, and FPS, Align and DropInvalid; options are the format's own. "lerobot" is ToLeRobot.
func Write(ctx context.Context, src robocache.Dataset, format, dst string, opt Options, options map[string]string) (*robocache.WriteReport, error) {
	if format == "lerobot" {
		if len(options) > 0 {
			return nil, &robocache.Error{Class: robocache.ErrMisuse, Op: "convert", Msg: "LeRobot's choices are Options, not text"}
		}
		r, err := ToLeRobot(ctx, src, dst, opt)
		if err != nil {
			return nil, err
		}
		return &robocache.WriteReport{Episodes: r.NumEpisodes, Frames: r.NumFrames, Dropped: r.Dropped, Findings: r.Findings}, nil
	}
	f, err := writer(format)
	if err != nil {
		return nil, err
	}
	info := src.Info()
	where := robocache.Where{"dataset": info.URI}
	switch {
	case opt.Resume:
		return nil, &robocache.Error{Class: robocache.ErrUnsupported, Op: "convert", Where: where, Msg: "a conversion to " + format + " cannot be resumed", Hint: "the destination appears whole or not at all: begin again"}
	case opt.DryRun:
		return nil, &robocache.Error{Class: robocache.ErrUnsupported, Op: "convert", Where: where, Msg: "a dry run of a conversion to " + format}
	}
	for _, e := range opt.Episodes {
		if e < 0 || e >= info.Episodes {
			return nil, &robocache.Error{Class: robocache.ErrMisuse, Op: "convert", Where: robocache.Where{"episode": e}, Msg: "no such episode"}
		}
	}
	for _, k := range opt.Keys {
		if info.Feature(k) == nil {
			return nil, &robocache.Error{Class: robocache.ErrMisuse, Op: "convert", Where: where, Msg: "no feature " + k + " to keep", Hint: robocache.Nearest(k, info.Keys())}
		}
	}
	if err := whole(ctx, src, opt); err != nil {
		return nil, err
	}
	if opt.Align != nil || !f.Clocks {
		to, cfg, err := onGrid(ctx, src, opt.Align, opt.FPS, opt.DropInvalid, opt.Threads, opt.Keys)
		if err != nil {
			return nil, err
		}
		if err := shareSpan(ctx, src, to, cfg, opt.Episodes); err != nil {
			return nil, err
		}
		if cfg != nil && opt.Keys != nil {
			opt.Keys = nil // those of the view
		}
		src = to
	}
	w := robocache.WriteOptions{Episodes: slices.Clone(opt.Episodes), Keys: opt.Keys, Threads: opt.Threads, SkipBad: opt.SkipBad, Options: options}
	if opt.Progress != nil {
		w.Progress = func(done, total int) { opt.Progress(Progress{Episodes: done, TotalEpisodes: total}) }
	}
	made := absent(dst)
	r, err := f.Write(ctx, src, dst, w)
	if err != nil {
		clearFolders(dst, made)
	}
	if r != nil {
		r.Findings = append(robocache.Findings(src), r.Findings...)
	}
	return r, err
}
