package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/edit"
	"github.com/goatnote-inc/robocache/inspect"
	"github.com/goatnote-inc/robocache/video"
)

var costSpan = 2 * time.Second // of decoding, a camera and a device

const trialFrames = 128 // that are encoded of a camera

// decodeCost measures what frames cost as they are, and encoded otherwise: the trial is an edit of a piece of an episode, made and removed.
func decodeCost(ctx context.Context, ds robocache.Dataset, uri string, open robocache.OpenOptions, codec string, gop int) (*inspect.Decoding, error) {
	d, err := inspect.MeasureDecoding(ctx, ds, -1, 0, costSpan)
	if err != nil {
		return nil, err
	}
	e := ds.Info().Episodes / 2
	for range ds.Info().Episodes {
		if ds.Len(e) > 0 {
			break
		}
		e = (e + 1) % ds.Info().Episodes
	}
	t := &inspect.EncodingTrial{Codec: cmp.Or(codec, advised(ctx, ds)), GOP: gop, Episode: ds.Info().EpisodeIndex(e), Frames: min(ds.Len(e), trialFrames)}
	t.Command = fmt.Sprintf("robocache edit reencode %s DST --codec %s --gop %d", robocache.Redact(uri), t.Codec, t.GOP)
	d.Trial = t
	{
		err := encodeTrial(ctx, ds, e, uri, open, t)
		if robocache.IsFatal(err) {
			return nil, err
		}
		if err != nil {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			t.Problem = err.Error()
		}
	}
	return d, nil
}

// advised is the codec for the first camera whose file can be read.
func advised(ctx context.Context, ds robocache.Dataset) string {
	for i := range ds.Info().Features {
		f := &ds.Info().Features[i]
		if f.Kind != robocache.KindVideo || f.Depth != nil {
			continue
		}
		if file, err := video.FirstFile(ctx, ds, f); err == nil && file != nil {
			defer file.Release()
			return string(video.Advised(&file.Index.Entries()[0]))
		}
	}
	return string(video.HEVC)
}

func encodeTrial(ctx context.Context, ds robocache.Dataset, position int, uri string, open robocache.OpenOptions, t *inspect.EncodingTrial) error {
	dir, err := os.MkdirTemp("", "robocache-trial-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	r, err := edit.Run(ctx, &edit.Request{Sources: []string{uri}, Open: open, DST: filepath.Join(dir, "trial"), To: robocache.DefaultFormat(), Stats: "rows", Verbs: []edit.Verb{
		{Verb: "keep", Choice: edit.Choice{Episodes: strconv.FormatInt(t.Episode, 10)}}, {Verb: "trim", To: fmt.Sprintf("%dr", t.Frames)},
		{Verb: "reencode", Video: &edit.Video{Codec: t.Codec, GOP: t.GOP}},
	}})
	if err != nil {
		return err
	}
	made, err := robocache.Open(ctx, r.DST, robocache.OpenOptions{Format: r.Format})
	if err != nil {
		return err
	}
	defer made.Close()
	is, err := inspect.MeasureDecoding(ctx, made, 0, t.Frames, costSpan)
	if err != nil {
		return err
	}
	was := map[string]float64{}
	measureDecoding, err := inspect.MeasureDecoding(ctx, ds, position, t.Frames, 0)
	if err != nil {
		return err
	}
	for _, s := range measureDecoding.Streams {
		was[s.Key] = s.Bytes
	}
	for _, s := range is.Streams {
		x := inspect.StreamTrial{StreamCost: s, PSNR: r.Video.PSNR[s.Key].Mean, LeastPSNR: r.Video.PSNR[s.Key].Min}
		if was[s.Key] > 0 {
			x.SizeRatio = s.Bytes / was[s.Key]
		}
		t.Streams = append(t.Streams, x)
	}
	return nil
}

func printDecoding(w io.Writer, d *inspect.Decoding) {
	fmt.Fprintf(w, "\ndecoding any frames, each alone: %d cores\n", d.Cores)
	head := []string{"key", "decoded/sample", "bytes/frame", "CPU s per 1,000", "samples/s", "on the GPU: CPU s per 1,000", "samples/s"}
	cells := func(s *inspect.StreamCost) []string {
		row := []string{s.Key, fmt.Sprintf("%.1f", s.Decoded), fmt.Sprintf("%.0f", s.Bytes)}
		for _, r := range []*inspect.DecodeRun{s.CPU, s.GPU} {
			if r == nil {
				row = append(row, "–", "–")
				continue
			}
			row = append(row, fmt.Sprintf("%.2f", r.CPU), fmt.Sprintf("%.0f", r.Rate))
		}
		return row
	}
	rows, problems := [][]string{head}, [][2]string{}
	note := func(s *inspect.StreamCost) {
		for _, p := range []string{s.Problem, s.NoGPU} {
			if p != "" {
				problems = append(problems, [2]string{p, s.Key})
			}
		}
	}
	for i := range d.Streams {
		rows = append(rows, cells(&d.Streams[i]))
		note(&d.Streams[i])
	}
	table(w, rows)
	printProblems(w, problems)
	t := d.Trial
	fmt.Fprintf(w, "\n%d frames of episode %d as %s, GOP %d\n", t.Frames, t.Episode, t.Codec, t.GOP)
	if t.Problem != "" {
		fmt.Fprintf(w, "  not encoded: %s\n", t.Problem)
		return
	}
	rows, problems = [][]string{append(head, "size", "PSNR dB")}, nil
	for i := range t.Streams {
		s := &t.Streams[i]
		rows = append(rows, append(cells(&s.StreamCost), fmt.Sprintf("×%.2f", s.SizeRatio), fmt.Sprintf("%.1f, least %.1f", s.PSNR, s.LeastPSNR)))
		note(&s.StreamCost)
	}
	table(w, rows)
	printProblems(w, problems)
	fmt.Fprintf(w, "  all of it: %s\n", t.Command)
}

// printProblems prints each once, with the first stream that has it, and how many more do.
func printProblems(w io.Writer, problems [][2]string) {
	streams := map[string][]string{}
	for _, p := range problems {
		streams[p[0]] = append(streams[p[0]], p[1])
	}
	for _, p := range problems {
		if who := streams[p[0]]; len(who) == 1 {
			fmt.Fprintf(w, "  %s: %s\n", who[0], p[0])
		} else if len(who) > 1 {
			fmt.Fprintf(w, "  %s and %d more: %s\n", who[0], len(who)-1, p[0])
		}
		delete(streams, p[0])
	}
}
