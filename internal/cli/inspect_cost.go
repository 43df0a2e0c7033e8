package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/goatnote-inc/robocache/inspect"
)

// costSpan is how long --decode-cost decodes for each camera and device. 0 selects the default.
var costSpan time.Duration

func printDecoding(w io.Writer, d *inspect.Decoding) {
	fmt.Fprintf(w, "\ndecoding any frames, each alone: %d cores\n", d.Cores)
	head := []string{
		"key",
		"decoded/sample",
		"bytes/frame",
		"CPU s per 1,000",
		"samples/s",
		"on the GPU: CPU s per 1,000",
		"samples/s",
	}
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
	printTable(w, rows)
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
		rows = append(
			rows,
			append(
				cells(&s.StreamCost),
				fmt.Sprintf("×%.2f", s.SizeRatio),
				fmt.Sprintf("%.1f, least %.1f", s.PSNR, s.LeastPSNR),
			),
		)
		note(&s.StreamCost)
	}
	printTable(w, rows)
	printProblems(w, problems)
	fmt.Fprintf(w, "  all of it: %s\n", t.Command)
}

// printProblems prints each problem once, with the first stream that has it and the number of other
// streams.
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
