package edit

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
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
