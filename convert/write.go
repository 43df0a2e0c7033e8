package convert

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/store"
)

// Formats lists the formats that can be written.
func Formats() (names []string) {
	for _, n := range robocache.Formats() {
		if f, err := robocache.FormatNamed(n); err == nil && f.Write != nil {
			names = append(names, n)
		}
	}
	return names
}

// Layouts describes the formats that have no writer of their own but whose layout another writer
// writes: "hdf5 is robomimic's layout".
func Layouts() string {
	var out []string
	for _, n := range robocache.Formats() {
		if f, err := robocache.FormatNamed(n); err == nil && f.WriteAs != "" {
			out = append(out, n+" is "+f.WriteAs+"'s layout")
		}
	}
	return strings.Join(out, ", ")
}

// Writer returns a format that can be written. Otherwise it returns ErrUnsupported with a list of
// the formats that can.
func Writer(name string) (f robocache.Format, err error) {
	hint := "formats that are written: " + strings.Join(Formats(), ", ")
	if l := Layouts(); l != "" {
		hint += "; " + l
	}
	f, err = robocache.FormatNamed(name)
	if err == nil && f.WriteAs != "" {
		f, err = robocache.FormatNamed(f.WriteAs)
	}
	switch {
	case err != nil:
		return f, robocache.Unsupported("convert", nil, "no format named %q", name).
			WithHint("%s", hint)
	case f.Write == nil:
		return f, robocache.Unsupported("convert", nil, "the format %s is read, not written", name).
			WithHint("%s", hint)
	}
	return f, nil
}

// Write writes src at dst with the writer of a registered format (convert.C7).
func Write(
	ctx context.Context,
	src robocache.Dataset,
	format, dst string,
	opt Options,
) (_ *robocache.WriteReport, err error) {
	f, src, w, err := prepareWrite(ctx, src, format, opt)
	if err != nil {
		return nil, err
	}
	if err := Apart(dst, src.Info().URI); err != nil {
		return nil, err
	}
	made := missingFolders(dst)
	w.Findings = append(slices.Clip(w.Findings), sideFindings(src)...)
	r, err := f.Write(ctx, src, dst, w)
	if err != nil {
		clearFolders(dst, made)
	}
	if r != nil && r.Own == nil {
		r.Findings = slices.Concat(robocache.Findings(src), w.Findings, r.Findings)
	}
	return r, err
}

// sideFindings returns a finding if the source has samples in recordings/. No conversion keeps
// them.
func sideFindings(src robocache.Dataset) []robocache.Finding {
	streams := src.Capabilities().SideStreams
	if streams == nil || len(streams()) == 0 {
		return nil
	}
	return []robocache.Finding{robocache.SideDropped(streams(), "a conversion takes rows")}
}

// prepareWrite computes the format, the dataset and the options that the writer gets.
func prepareWrite(
	ctx context.Context,
	src robocache.Dataset,
	format string,
	opt Options,
) (f robocache.Format, _ robocache.Dataset, w robocache.WriteOptions, err error) {
	fail := func(err error) (robocache.Format, robocache.Dataset, robocache.WriteOptions, error) {
		return f, nil, w, err
	}
	if f, err = Writer(format); err != nil {
		return fail(err)
	}
	if err := checkFormat(&f, src.Info(), format, &opt); err != nil {
		return fail(err)
	}
	w = opt.WriteOptions
	if w.Shard != nil {
		s, err := parseSchema(w.Shard.Schema)
		if err != nil {
			return fail(err)
		}
		shard := *w.Shard
		shard.Schema = s.Writer
		w.Shard = &shard
		opt.masks = s.Masks
		opt.segments = s.Segments
	}
	w.Episodes = slices.Clone(opt.Episodes)
	if err := w.Check(src.Info()); err != nil {
		return fail(err)
	}
	where := robocache.Where{"dataset": src.Info().URI}
	if opt.Keys == nil && !f.KeepsLacking {
		src = robocache.WithoutUnasked(src)
	}
	if !opt.SkipBad {
		hint := robocache.Option("skip_bad", true) + " converts the rest"
		if err := robocache.Whole(src, opt.Episodes, "convert", hint); err != nil {
			return fail(err)
		}
	}
	whole := src
	if opt.Align != nil || !f.KeepsClocks(opt.WriteOptions.Options) {
		if src, err = alignToGrid(ctx, src, &f, &opt, &w); err != nil {
			return f, src, w, err
		}
	}
	if opt.DropInvalid {
		if hasStreamClocks(src.Info()) {
			return fail(
				robocache.Misuse(
					"convert",
					where,
					"drop_invalid: the streams keep clocks of their own, and have no common rows",
				).WithHint("pass %s to bring them onto one grid", robocache.Option("hz")),
			)
		}
		if src, err = cutEpisodes(ctx, src, &opt, &w); err != nil {
			return f, src, w, err
		}
	}
	if w.Shard != nil && src != whole {
		// The plan already has the findings of the grid, for all episodes.
		src.Info().Findings = whole.Info().Findings
	}
	return f, src, w, nil
}

// checkFormat returns an error if a format cannot be written with the options. name is the name of
// the format as the caller gave it.
func checkFormat(f *robocache.Format, info *robocache.Info, name string, opt *Options) error {
	where := robocache.Where{"dataset": info.URI}
	switch {
	case opt.Resume && !f.Resumes:
		return robocache.Unsupported(
			"convert",
			where,
			"a conversion to %s cannot be resumed",
			name,
		).WithHint("the destination appears whole or not at all: begin again")
	case opt.DryRun && !f.Resumes:
		return robocache.Unsupported("convert", where, "a dry run of a conversion to %s", name)
	case info.Episodes == 0 && f.NeedsEpisodes:
		return robocache.Unsupported(
			"convert",
			where,
			"the dataset has no episodes, and %s has no place for one without",
			name,
		).WithHint("Record episodes first, or convert to a format that keeps an empty " +
			"dataset: lerobot, rlds, zarr, delta.")
	}
	return nil
}

// Options are the choices of a conversion. The zero value converts everything.
type Options struct {
	robocache.WriteOptions
	// Align resamples all streams to one grid first (align.View). If it is nil, a source whose
	// streams have their own clocks is aligned at FPS, or at its own rate.
	Align *align.Config `json:"align,omitempty"`
	// DropInvalid leaves out rows at which some stream has no value, instead of writing
	// "<key>.valid". If rows in the middle of an episode are left out, the episode is split.
	DropInvalid bool `json:"drop_invalid,omitempty"`
	// KeepGaps, with DropInvalid, leaves out rows only at the ends of episodes. Other rows are
	// masked, and episodes are not split.
	KeepGaps bool     `json:"keep_gaps,omitempty"`
	masks    []string // in a shard: streams that have a mask in any shard
	// segments is set in a shard with DropInvalid: the number of result episodes of each source
	// episode.
	segments []int
}

// Apart returns an error if the destination and a source are the same folder, or one contains the
// other. Symbolic links are resolved.
func Apart(dst string, sources ...string) error {
	for _, src := range sources {
		if dst != "" && src != "" && (isWithin(dst, src) || isWithin(src, dst)) {
			return robocache.Misuse(
				"convert",
				robocache.Where{"dataset": robocache.Redact(dst)},
				"the destination and the source %s are one folder, or one lies in the other",
				robocache.Redact(src),
			).WithHint("Name a folder outside the source.")
		}
	}
	return nil
}

// isWithin reports whether inner is outer or lies in it.
func isWithin(inner, outer string) bool {
	innerPath, innerLocal := store.LocalPath(inner)
	outerPath, outerLocal := store.LocalPath(outer)
	if !innerLocal || !outerLocal {
		folder := func(uri string) string { return strings.TrimRight(uri, "/") + "/" }
		return innerLocal == outerLocal && strings.HasPrefix(folder(inner), folder(outer))
	}
	want, err := os.Stat(outerPath)
	if err != nil {
		return false // outer does not exist
	}
	for dir := resolveLinks(innerPath); ; dir = filepath.Dir(dir) {
		if i, err := os.Stat(dir); err == nil && os.SameFile(i, want) {
			return true
		}
		if dir == filepath.Dir(dir) {
			return false
		}
	}
}

// resolveLinks returns the path with symbolic links resolved, as far as the path exists.
func resolveLinks(path string) string {
	path, _ = filepath.Abs(path)
	rest := ""
	for dir := path; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if to, err := filepath.EvalSymlinks(dir); err == nil {
			return filepath.Join(to, rest)
		}
		rest = filepath.Join(filepath.Base(dir), rest)
	}
	return path
}

// missingFolders lists the folders of a destination path that do not exist, deepest first.
func missingFolders(dst string) (out []string) {
	dir, ok := store.LocalPath(dst)
	if !ok || dst == "" {
		return nil
	}
	for dir = filepath.Clean(dir); ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); !os.IsNotExist(err) {
			return out
		}
		out = append(out, dir)
	}
}

// clearFolders removes the empty folders that a run left at a destination, and those listed in
// made.
func clearFolders(dst string, made []string) {
	if dir, ok := store.LocalPath(dst); ok {
		removeEmpty(dir)
	}
	for _, dir := range made {
		if i, err := os.Lstat(dir); err != nil || !i.IsDir() || os.Remove(dir) != nil {
			return // the folder is not empty, so its parents are not either
		}
	}
}

// removeEmpty removes the empty folders below a folder.
func removeEmpty(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.IsDir() {
			sub := filepath.Join(dir, e.Name())
			removeEmpty(sub)
			_ = os.Remove(sub) // fails if the folder is not empty
		}
	}
}
