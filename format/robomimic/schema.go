package robomimic

import (
	"context"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
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
	if err := d.Schema(ctx, func(path string) string { return keyOf(path, withNext) }); err != nil {
		return err
	}
	// Observations and action first: what a policy sees and does.
	slices.SortStableFunc(d.Streams, func(a, b h5set.Stream) int { return rank(a.Key) - rank(b.Key) })
	return nil
}

func rank(key string) int {
	if strings.HasPrefix(key, "observation.") || key == "action" {
		return 0
	}
	return 1
}
