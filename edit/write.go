package edit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/convert"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
	"github.com/goatnote-inc/robocache/store"
)

const (
	editsName    = "meta/edits.jsonl" // log of the edits that made a dataset
	maxMetaBytes = 256 << 20          // maximum size of a source file that is read as a whole
)

// writeParts writes the parts, or reports what would be written. All parts are checked before the
// first one is written.
func (e *editor) writeParts(ctx context.Context, parts []*Plan) (*Report, error) {
	r := e.req
	format, err := e.chooseFormat(ctx, parts)
	if err != nil {
		return nil, err
	}
	if err := e.checkDestination(format); err != nil {
		return nil, err
	}
	dryReports := map[*Plan]*Report{}
	for _, p := range parts {
		p.Format = format
		if err := e.checkPartFolder(ctx, p); err != nil {
			return nil, err
		}
		if dryReports[p], err = e.writePlan(ctx, p, e.partURI(p), true); err != nil {
			return nil, err
		}
	}
	if r.InPlace && !r.DryRun {
		return e.editInPlace(ctx, parts[0])
	}
	all := &Report{DST: r.DST, Format: format, DryRun: r.DryRun, Findings: []robocache.Finding{}}
	for _, p := range parts {
		out := dryReports[p]
		if !r.DryRun {
			if out, err = e.writePlan(ctx, p, e.partURI(p), false); err != nil {
				return nil, err
			}
		}
		if !e.isSplit() {
			return out, nil
		}
		out.Part = p.Part
		all.Parts = append(all.Parts, out)
		all.Episodes += out.Episodes
		all.Frames += out.Frames
		all.Bytes += out.Bytes
		all.Video.addCounts(&out.Video)
		all.Findings = append(all.Findings, out.Findings...)
	}
	return all, nil
}

// isSplit reports whether the result has several parts.
func (e *editor) isSplit() bool { return e.parts != nil }

// chooseFormat returns the name of the format to write. If every part can be copied file by file,
// it sets the files of the parts and returns the format of the source.
func (e *editor) chooseFormat(ctx context.Context, parts []*Plan) (string, error) {
	format, err := e.resultFormat()
	if err != nil {
		return "", err
	}
	for _, p := range parts {
		p.files = e.unchangedFiles(ctx, p)
	}
	mustWrite := func(p *Plan) bool { return p.files == nil }
	if !slices.ContainsFunc(parts, mustWrite) {
		return e.srcs[0].Info().Format, nil
	}
	for _, p := range parts {
		p.files = nil
	}
	return format, nil
}

// checkDestination returns an error if the request cannot be written in a format, or in place.
func (e *editor) checkDestination(format string) error {
	r := e.req
	source := e.srcs[0].Info()
	switch {
	case e.plan.Video != nil && format != robocache.DefaultFormat():
		return robocache.Unsupported(
			"edit",
			robocache.Where{"dataset": source.URI},
			"images of the format %s cannot be reencoded or resized",
			format,
		).WithHint("Pass %s", robocache.Option("as", "lerobot"))
	case r.InPlace && (e.isSplit() || len(e.srcs) > 1 || r.DST != ""):
		return misuse(nil, "in place: only one source, no destination and no split are "+
			"possible", "")
	case r.InPlace && format != source.Format:
		return misuse(
			nil,
			"in place: the format "+source.Format+" would become "+format,
			"name a destination",
		)
	case !r.InPlace && !r.DryRun && r.DST == "":
		return misuse(nil, "no destination", "name a new folder, or edit in place")
	}
	return nil
}

// partURI returns the destination of a part. Parts of a split are folders in the request's
// destination.
func (e *editor) partURI(p *Plan) string {
	dst := e.req.DST
	if !e.isSplit() || dst == "" {
		return dst
	}
	return strings.TrimSuffix(dst, "/") + "/" + p.Part
}

// checkPartFolder returns an error if the folder of a part overlaps a source or is not empty.
func (e *editor) checkPartFolder(ctx context.Context, p *Plan) error {
	uri := e.partURI(p)
	if uri == "" || e.req.InPlace {
		return nil
	}
	for _, ds := range e.srcs {
		if err := convert.Apart(uri, ds.Info().URI); err != nil {
			return err
		}
	}
	return rejectNonEmpty(ctx, uri)
}

// resultFormat returns the name of the format that a writer would write: the requested one, that of
// the sources if they have the same and it can be written, or else LeRobot.
func (e *editor) resultFormat() (string, error) {
	if e.plan.isAnnotated() {
		if e.req.To != "" && e.req.To != robocache.DefaultFormat() {
			return "", robocache.Unsupported("edit", nil, "%s has no language columns", e.req.To)
		}
		return robocache.DefaultFormat(), nil
	}
	if e.req.To != "" {
		f, err := convert.Writer(e.req.To)
		if err != nil {
			return "", err
		}
		return f.Name, nil
	}
	name := e.srcs[0].Info().Format
	for _, ds := range e.srcs {
		f, err := robocache.FormatNamed(ds.Info().Format)
		isWritable := err == nil && f.Write != nil
		if !isWritable || f.Name != name {
			return robocache.DefaultFormat(), nil
		}
	}
	return name, nil
}

// rejectNonEmpty returns an error if the destination is not empty.
func rejectNonEmpty(ctx context.Context, dst string) (err error) {
	if dir, ok := store.LocalPath(dst); ok {
		entries, err := os.ReadDir(dir)
		isUnreadable := err != nil && !os.IsNotExist(err)
		if isUnreadable || len(entries) > 0 {
			return misuse(
				robocache.Where{"dataset": dst},
				"the destination is not empty",
				"name a new folder",
			)
		}
		return nil
	}
	s, err := store.OpenWritable(dst)
	if err != nil {
		return err
	}
	defer store.Close(s)
	list, err := s.List(ctx, "")
	if err != nil {
		return err
	}
	if len(list) > 0 {
		return misuse(
			robocache.Where{"dataset": robocache.Redact(dst)},
			"the destination is not empty",
			"name a new folder",
		)
	}
	return nil
}

// writerOptions returns the options of the LeRobot writer. Other writers get none.
func (e *editor) writerOptions(p *Plan) map[string]string {
	out := map[string]string{}
	if p.Format != robocache.DefaultFormat() {
		return out
	}
	if e.link != "" {
		out["link_from"] = e.link
	}
	if p.Cut == CutHidden {
		out["hidden"] = strconv.Itoa(maxHidden)
	}
	if e.req.Stats == "rows" {
		out["frames"] = "none"
	}
	if s := p.Video; s != nil {
		number := func(name string, n int) {
			if n != 0 {
				out[name] = strconv.Itoa(n)
			}
		}
		number("gop", s.GOP)
		number("crf", s.CRF)
		if s.Preset != "" {
			out["preset"] = s.Preset
		}
		if s.Width > 0 {
			out["size"] = fmt.Sprintf("%dx%d", s.Width, s.Height)
		}
		switch {
		case s.All && (s.Codec != "" || s.Width == 0):
			// Without a new size nothing else forces encoding, so name a codec (default AV1). A new
			// size forces encoding by itself, and H.264 may then replace AV1.
			out["video_codec"] = cmp.Or(s.Codec, "av1")
		case s.Codec != "":
			out["codec"] = s.Codec
		}
	}
	return out
}

// writePlan writes the result of a plan to dst, or reports what would be written if dry is set.
func (e *editor) writePlan(ctx context.Context, p *Plan, dst string, dry bool) (*Report, error) {
	result, err := e.openResult(ctx, p, dst)
	if err != nil {
		return nil, err
	}
	defer result.Close()
	format, err := robocache.FormatNamed(p.Format)
	if err != nil {
		return nil, err
	}
	copiesFiles := p.files != nil
	if !copiesFiles && !format.KeepsLacking {
		if err := result.checkAllStreams(e.deleted); err != nil {
			return nil, err
		}
	}
	report := &Report{
		DST:      dst,
		Format:   p.Format,
		DryRun:   dry,
		Notes:    p.Notes,
		Plan:     p,
		Episodes: result.info.Episodes,
		Frames:   result.info.Frames,
		Findings: []robocache.Finding{},
		Part:     p.Part,
		Deleted:  e.deleted,
	}
	hasDryRun := format.Resumes // of the writer
	switch {
	case copiesFiles:
		report.Notes = append(slices.Clip(p.Notes),
			fmt.Sprintf("%d files are copied as they are", len(p.files)))
		if !dry {
			if err := e.copyFiles(ctx, p, dst); err != nil {
				return nil, err
			}
		}
	case hasDryRun || !dry:
		if err := e.convertPlan(ctx, result, report); err != nil {
			return nil, err
		}
	default:
		report.Findings = append(report.Findings, result.info.Findings...)
	}
	if dry {
		report.Bytes, report.Free = e.estimateSize(ctx, p, dst)
	}
	return report, nil
}

// openResult returns the result of a plan as a dataset that the writer of dst reads.
func (e *editor) openResult(ctx context.Context, p *Plan, dst string) (*planDataset, error) {
	result, err := newPlanDataset(ctx, p, e.srcs)
	if err != nil {
		return nil, err
	}
	if err := result.numberTasks(ctx); err != nil {
		return nil, errors.Join(err, result.Close())
	}
	result.recountFrames = slices.ContainsFunc(
		p.Verbs,
		func(v Verb) bool { return v.Verb == "recompute-stats" },
	)
	if e.req.InPlace {
		result.replacedURI = joinURI(e.srcs[0].Info().URI, write.RecordingsFolder)
	}
	result.resultURI = dst
	result.findRecordings()
	return result, nil
}

// convertPlan writes the result with the writer of its format, and adds to the report.
func (e *editor) convertPlan(ctx context.Context, v *planDataset, out *Report) error {
	p := v.plan
	opt := convert.Options{
		WriteOptions: robocache.WriteOptions{
			Threads:  e.req.Threads,
			FPS:      p.FPS,
			Options:  e.writerOptions(p),
			DryRun:   out.DryRun,
			Progress: e.req.Progress,
			Renumber: p.repeatsEpisodes(),
		},
	}
	if e.req.InPlace {
		opt.Replaces = e.srcs[0].Info().URI
	}
	r, err := convert.Write(ctx, v, p.Format, out.DST, opt)
	if err != nil {
		v.removeRecordings(context.WithoutCancel(ctx))
		return err
	}
	out.addWriterReport(r)
	if !out.DryRun && out.Video.Rows > 0 {
		out.Video.PSNR, err = v.comparePSNR(ctx, out.DST, r.Own.(*write.Report))
	}
	return err
}

// estimateSize returns the approximate size of the result and the free space at the destination.
func (e *editor) estimateSize(ctx context.Context, p *Plan, dst string) (bytes, free int64) {
	for _, f := range p.files {
		bytes += f.Size
	}
	for i, ds := range e.srcs {
		s, ok := robocache.As[store.Source](ds)
		if !ok || p.files != nil || p.Sources[i].Frames == 0 {
			continue
		}
		files, err := s.Store().List(ctx, "")
		if err != nil {
			continue // the store cannot list files
		}
		var all, rows int64
		for _, f := range files {
			all += f.Size
		}
		for _, ep := range p.Episodes {
			if ep.Source == i {
				rows += int64(ep.To - ep.From)
			}
		}
		bytes += int64(float64(all) * float64(rows) / float64(p.Sources[i].Frames))
	}
	if dir, ok := store.LocalPath(dst); ok && dst != "" {
		free = freeBytes(filepath.Dir(filepath.Clean(dir)))
	}
	return bytes, free
}
