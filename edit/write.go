package edit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
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

// Report describes what an edit did, or what a dry run would do.
type Report struct {
	DST      string `json:"dst,omitempty"`
	Format   string `json:"format"`
	DryRun   bool   `json:"dry_run,omitempty"`
	InPlace  bool   `json:"in_place,omitempty"`
	Episodes int    `json:"num_episodes"`
	Frames   int64  `json:"num_frames"`
	// Deleted are the indices of the episodes that the verbs delete and keep removed.
	Deleted []int64 `json:"deleted_episodes,omitempty"`
	Video   Counts  `json:"video"`
	Bytes   int64   `json:"bytes,omitempty"` // dry run: approximate size of the result
	// Free (dry run) is the free space at the destination.
	Free     int64               `json:"free,omitempty"`
	Notes    []string            `json:"notes,omitempty"`
	Findings []robocache.Finding `json:"findings"`
	Plan     *Plan               `json:"plan,omitempty"`
	Parts    []*Report           `json:"parts,omitempty"` // parts of a split
	Part     string              `json:"split,omitempty"`
	Undo     string              `json:"undo,omitempty"` // in place: where the old dataset is kept
}

// Counts counts video segments. A segment is one episode of one camera.
type Counts struct {
	Copied int `json:"copied"` // segments that were copied without encoding
	Hidden int `json:"hidden"` // copied segments with frames that no row refers to
	Frames int `json:"frames"` // number of these hidden frames
	// Joined counts copied segments whose ends were encoded, up to the nearest point where a copy
	// can start or stop.
	Joined  int            `json:"joined"`
	Encoded int            `json:"encoded"`        // segments that were encoded completely
	Why     map[string]int `json:"why,omitempty"`  // number of Encoded segments by reason
	Rows    int64          `json:"encoded_frames"` // encoded frames in Joined and Encoded segments
	// PSNR compares the encoded frames of each camera with the source.
	PSNR map[string]PSNR `json:"psnr,omitempty"`
}

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
	v, err := newPlanDataset(ctx, p, e.srcs)
	if err != nil {
		return nil, err
	}
	defer v.Close()
	if err := v.numberTasks(ctx); err != nil {
		return nil, err
	}
	v.recountFrames = slices.ContainsFunc(
		p.Verbs,
		func(v Verb) bool { return v.Verb == "recompute-stats" },
	)
	f, err := robocache.FormatNamed(p.Format)
	if err != nil {
		return nil, err
	}
	if p.files == nil && !f.KeepsLacking {
		if err := v.checkAllStreams(e.deleted); err != nil {
			return nil, err
		}
	}
	out := &Report{
		DST:      dst,
		Format:   p.Format,
		DryRun:   dry,
		Notes:    p.Notes,
		Plan:     p,
		Episodes: v.info.Episodes,
		Frames:   v.info.Frames,
		Findings: []robocache.Finding{},
		Part:     p.Part,
		Deleted:  e.deleted,
	}
	if e.req.InPlace {
		v.replacedURI = joinURI(e.srcs[0].Info().URI, write.RecordingsFolder)
	}
	v.resultURI = dst
	v.findRecordings()
	switch {
	case p.files != nil:
		out.Notes = append(slices.Clip(p.Notes),
			fmt.Sprintf("%d files are copied as they are", len(p.files)))
		if !dry {
			if err := e.copyFiles(ctx, p, dst); err != nil {
				return nil, err
			}
		}
	case f.Resumes || !dry:
		if err := e.convertPlan(ctx, v, out); err != nil {
			return nil, err
		}
	default: // the writer has no dry run
		out.Findings = append(out.Findings, v.info.Findings...)
	}
	if dry {
		out.Bytes, out.Free = e.estimateSize(ctx, p, dst)
	}
	return out, nil
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

// addWriterReport copies the results of the writer into the report.
func (r *Report) addWriterReport(w *robocache.WriteReport) {
	r.Episodes = w.Episodes
	r.Frames = w.Frames
	r.Findings = append(r.Findings, w.Findings...)
	own, ok := w.Own.(*write.Report)
	if !ok {
		return
	}
	r.Video.Copied, r.Video.Encoded = own.Copied, own.Encoded
	for _, m := range own.Episodes {
		if m.New < 0 {
			continue
		}
		for _, verdict := range m.Video {
			if why, ok := strings.CutPrefix(verdict, "encoded: "); ok {
				if r.Video.Why == nil {
					r.Video.Why = map[string]int{}
				}
				r.Video.Why[why]++
				r.Video.Rows += int64(m.Length)
			}
		}
		for _, h := range m.Hidden {
			r.Video.Hidden++
			r.Video.Frames += h[0] + h[1]
		}
		for _, n := range m.Ends {
			r.Video.Joined++
			r.Video.Rows += int64(n[0] + n[1])
		}
	}
}

func (c *Counts) addCounts(o *Counts) {
	c.Copied += o.Copied
	c.Hidden += o.Hidden
	c.Frames += o.Frames
	c.Joined += o.Joined
	c.Encoded += o.Encoded
	c.Rows += o.Rows
	for why, n := range o.Why {
		if c.Why == nil {
			c.Why = map[string]int{}
		}
		c.Why[why] += n
	}
}

// Edit is a line of meta/edits.jsonl. It records how the dataset was made from others. It holds no
// time, so that the same edit gives the same bytes.
type Edit struct {
	Edit    int       `json:"edit"` // version of this record
	Verbs   []Verb    `json:"verbs"`
	Sources []EditOf  `json:"sources"`
	FPS     string    `json:"fps"`
	Cut     string    `json:"cut,omitempty"`
	Rows    []CutRows `json:"rows,omitempty"` // rows of the trimmed episodes
	// Hidden holds the numbers of video frames that no row refers to, by camera and episode: those
	// before and those after the frames of the episode.
	Hidden map[string]map[string][2]int `json:"hidden,omitempty"`
}

// EditOf identifies a source of an edit and its episodes.
type EditOf struct {
	Format      string `json:"format"`
	Fingerprint string `json:"fingerprint"`
	// Episodes are the source indices of the result's episodes, in order: "0:3,4:50".
	Episodes string `json:"episodes"`
}

// CutRows identifies the rows [From, To) of the source episode that a trimmed episode has.
type CutRows struct {
	Episode int `json:"episode_index"`
	From    int `json:"from"`
	To      int `json:"to"`
}

// editLine returns the line that the result adds to meta/edits.jsonl.
func (v *planDataset) editLine(r *write.Report) ([]byte, error) {
	l := Edit{Edit: 1, Verbs: v.plan.Verbs, FPS: v.plan.FPS.String(), Cut: v.plan.Cut}
	numbers := make([][]int, len(v.srcs))
	for i, p := range v.plan.Episodes {
		numbers[p.Source] = append(
			numbers[p.Source],
			int(v.srcs[p.Source].Info().EpisodeIndex(p.Episode)),
		)
		if !v.hasAllRows(&p) {
			l.Rows = append(l.Rows, CutRows{i, p.From, p.To})
		}
	}
	for i, s := range v.plan.Sources {
		l.Sources = append(l.Sources, EditOf{s.Format, s.Fingerprint, robocache.Spans(numbers[i])})
	}
	if r != nil {
		for _, m := range r.Episodes {
			for key, h := range m.Hidden {
				if l.Hidden == nil {
					l.Hidden = map[string]map[string][2]int{}
				}
				if l.Hidden[key] == nil {
					l.Hidden[key] = map[string][2]int{}
				}
				l.Hidden[key][strconv.Itoa(m.New)] = h
			}
		}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(l); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
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

// Text returns the report as text for a terminal.
func (r *Report) Text() string {
	var b strings.Builder
	verb := "wrote"
	if r.DryRun {
		verb = "would write"
	}
	parts := r.Parts
	if parts == nil {
		parts = []*Report{r}
	}
	for _, p := range parts {
		p.describePart(&b, verb)
	}
	if r.Undo != "" {
		fmt.Fprintf(
			&b,
			"  the dataset as it was is kept at %s until the next edit: robocache edit undo %s\n",
			r.Undo,
			r.DST,
		)
	}
	return b.String()
}

// describePart writes the text about one part of a result. verb is "wrote" or "would write".
func (r *Report) describePart(b *strings.Builder, verb string) {
	name := r.DST
	if name == "" {
		name = "(no destination)"
	}
	fmt.Fprintf(
		b,
		"%s %s: %s, %d episodes, %d frames\n",
		verb,
		name,
		r.Format,
		r.Episodes,
		r.Frames,
	)
	if len(r.Deleted) > 0 {
		deleted := robocache.Info{Episodes: len(r.Deleted)}
		deleted.NumberEpisodes(r.Deleted)
		fmt.Fprintf(b, "  %d episodes deleted: %s\n", len(r.Deleted), deleted.EpisodeRanges())
	}
	if r.Video.Copied+r.Video.Encoded > 0 {
		r.Video.describeCounts(b)
	}
	if r.DryRun && r.Bytes > 0 {
		fmt.Fprintf(b, "  about %d MB", (r.Bytes+999_999)/1_000_000)
		if r.Free > 0 {
			fmt.Fprintf(b, ", %d MB are free", r.Free/1_000_000)
		}
		b.WriteByte('\n')
	}
	for _, n := range r.Notes {
		fmt.Fprintf(b, "  %s\n", n)
	}
}

// describeCounts writes the text of the counts.
func (c *Counts) describeCounts(b *strings.Builder) {
	fmt.Fprintf(b, "  video segments: %d copied", c.Copied)
	if c.Hidden > 0 {
		fmt.Fprintf(b, " (%d with %d frames around them that no row shows)", c.Hidden, c.Frames)
	}
	if c.Joined > 0 {
		fmt.Fprintf(b, " (%d of them except for frames at their ends)", c.Joined)
	}
	fmt.Fprintf(b, ", %d encoded", c.Encoded)
	if c.Rows > 0 {
		fmt.Fprintf(b, " (%d frames)", c.Rows)
	}
	b.WriteByte('\n')
	for _, why := range slices.Sorted(maps.Keys(c.Why)) {
		fmt.Fprintf(b, "    encoded: %s: %d\n", why, c.Why[why])
	}
	for _, key := range slices.Sorted(maps.Keys(c.PSNR)) {
		fmt.Fprintf(
			b,
			"    PSNR of %s against the source: %.1f dB on average, %.1f at least (%d frames)\n",
			key,
			c.PSNR[key].Mean,
			c.PSNR[key].Min,
			c.PSNR[key].Frames,
		)
	}
}
