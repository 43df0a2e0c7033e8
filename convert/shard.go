package convert

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
)

// Plan holds what all shards of one conversion must agree on.
type Plan struct {
	Schema json.RawMessage   // value of WriteShard.Schema
	Rows   robocache.Dataset // rows to write; its Len counts the rows of the result
	Format robocache.Format
	// Findings are those of the source, of the grid, and of the whole conversion.
	Findings []robocache.Finding
}

// shardSchema is the content of Plan.Schema.
type shardSchema struct {
	Masks    []string        `json:"masks,omitempty"`    // streams that have a mask in some shard
	Segments []int           `json:"segments,omitempty"` // value of Options.segments
	Writer   json.RawMessage `json:"writer,omitempty"`
}

// PlanShards examines the whole source and returns what its shards must agree on. It returns
// ErrUnsupported if the format cannot be written in shards.
func PlanShards(
	ctx context.Context,
	src robocache.Dataset,
	format string,
	opt Options,
) (p *Plan, err error) {
	if _, err := Sharding(format); err != nil {
		return p, err
	}
	f, rows, w, err := prepareWrite(ctx, src, format, opt)
	if err != nil {
		return p, err
	}
	var s shardSchema
	if v, ok := robocache.As[*align.Viewed](rows); ok {
		for _, g := range v.Info().Features {
			key, isMask := strings.CutSuffix(g.Key, align.ValidSuffix)
			isNewMask := isMask && src.Info().Feature(g.Key) == nil
			if isNewMask {
				s.Masks = append(s.Masks, key)
			}
		}
	}
	if d, ok := rows.(*segmented); ok {
		s.Segments = make([]int, src.Info().Episodes)
		for _, g := range d.segments {
			s.Segments[g.episode]++
		}
	}
	if s.Writer, err = f.Sharding.Plan(ctx, rows, w); err != nil {
		return p, err
	}
	encoded, err := json.Marshal(s)
	if err != nil {
		return p, err
	}
	return &Plan{
		Schema:   encoded,
		Rows:     rows,
		Format:   f,
		Findings: append(robocache.Findings(rows), w.Findings...),
	}, nil
}

// Made returns the number of result episodes and rows that an episode of the source becomes.
func (p *Plan) Made(e int) (episodes, rows int) {
	d, ok := p.Rows.(*segmented)
	if !ok {
		return 1, p.Rows.Len(e)
	}
	at, _ := slices.BinarySearchFunc(
		d.segments,
		e,
		func(s segment, e int) int { return s.episode - e },
	)
	for ; at < len(d.segments) && d.segments[at].episode == e; at++ {
		episodes++
		rows += d.Len(at)
	}
	return episodes, rows
}

// Sharding returns how a format is written in shards. It returns ErrUnsupported if it cannot be.
func Sharding(format string) (_ *robocache.Sharding, err error) {
	f, err := Writer(format)
	if err != nil {
		return nil, err
	}
	if f.Sharding == nil {
		return nil, robocache.Unsupported(
			"plan",
			nil,
			"the format %s is not written in shards",
			format,
		).WithHint("formats that are: %s", strings.Join(Sharded(), ", "))
	}
	return f.Sharding, nil
}

// Sharded lists the formats that can be written in shards.
func Sharded() (names []string) {
	for _, n := range Formats() {
		if f, err := robocache.FormatNamed(n); err == nil && f.Sharding != nil {
			names = append(names, n)
		}
	}
	return names
}

// Place returns the new names of the shards' files (Sharding.Place); nil: they keep their names.
func Place(
	f *robocache.Sharding,
	dst string,
	plan json.RawMessage,
	shards []robocache.ShardReport,
) (_ []map[string]string, err error) {
	if f.Place == nil {
		return nil, nil
	}
	content, err := parseSchema(plan)
	if err != nil {
		return nil, err
	}
	return f.Place(dst, content.Writer, shards)
}

// Merge combines the reports of the shards (Sharding.Merge).
func Merge(
	ctx context.Context,
	format, dst string,
	plan json.RawMessage,
	shards []robocache.ShardReport,
) (err error) {
	f, err := Sharding(format)
	if err != nil {
		return err
	}
	if f.Merge == nil {
		return nil
	}
	content, err := parseSchema(plan)
	if err != nil {
		return err
	}
	return f.Merge(ctx, dst, content.Writer, shards)
}

func parseSchema(b json.RawMessage) (s shardSchema, err error) {
	if err = json.Unmarshal(b, &s); err != nil {
		err = robocache.Malformed("plan", nil, "the schema of a manifest").WithCause(err)
	}
	return s, err
}
