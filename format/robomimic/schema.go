package robomimic

import (
	"context"
	"fmt"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/h5"
	"github.com/goatnote-inc/robocache/format/internal/h5set"
)

// keyOf names the stream of a data set of a demo; "" where it is none.
func keyOf(path string, next bool) string {
	dots := strings.ReplaceAll(path, "/", ".")
	switch {
	case path == "actions":
		return "action"
	case strings.HasPrefix(path, "obs/"):
		return "observation" + dots[len("obs"):]
	case strings.HasPrefix(path, "next_obs/"):
		if !next {
			return ""
		}
		return "next.observation" + dots[len("next_obs"):]
	}
	return dots
}

// schema describes the streams of the first demo that has rows.
func (d *Dataset) schema(ctx context.Context, next string) error {
	withNext := next == "true"
	if next != "" && next != "true" && next != "false" {
		return &robocache.Error{Class: robocache.ErrMisuse, Op: "robomimic", Msg: "option next_obs", Want: "true or false", Got: next}
	}
	for i := range d.Episodes {
		e := &d.Episodes[i]
		if e.Length == 0 {
			continue
		}
		streams, skipped, err := describe(ctx, e, withNext)
		if err != nil {
			if !h5set.Data(err) {
				return err
			}
			d.find(robocache.SeverityError, "unreadable-episode", robocache.Where{"episode": e.Index, "file": e.File.Name(), "pointer": e.Path}, err.Error(), "")
			continue
		}
		d.Streams = streams
		d.Info_.Findings = append(d.Info_.Findings, skipped...)
		return nil
	}
	return nil
}

func describe(ctx context.Context, e *h5set.Episode, next bool) (out []h5set.Stream, found []robocache.Finding, err error) {
	w, err := e.Walker(ctx)
	if err != nil {
		return nil, nil, err
	}
	note := func(path, why string) {
		found = append(found, robocache.Finding{Severity: robocache.SeverityInfo, Code: "no-stream", Where: robocache.Where{"file": e.File.Name(), "pointer": e.Path + "/" + path}, Message: "this is no stream: " + why})
	}
	var first, rest []h5set.Stream
	err = w.Walk(ctx, "", func(path string, o *h5.Object) error {
		key := keyOf(path, next)
		if key == "" {
			return nil
		}
		d, err := o.Dataset(ctx, e.Path+"/"+path)
		if err != nil {
			if !h5set.Data(err) {
				return err
			}
			note(path, err.Error())
			return nil
		}
		if len(d.Shape) == 0 || d.Rows() != int64(e.Length) {
			note(path, fmt.Sprintf("it has shape %v, actions have %d rows", d.Shape, e.Length))
			return nil
		}
		streams, why, err := h5set.Describe(ctx, d, key, path)
		if err != nil && !h5set.Data(err) {
			return err
		}
		if err != nil {
			why = err.Error()
		}
		if len(streams) == 0 {
			note(path, why)
			return nil
		}
		if strings.HasPrefix(key, "observation.") || key == "action" {
			first = append(first, streams...)
		} else {
			rest = append(rest, streams...)
		}
		return nil
	}, note)
	return append(first, rest...), found, err
}
