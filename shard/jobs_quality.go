package shard

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/quality"
	"github.com/goatnote-inc/robocache/store"
)

const (
	qualityName         = "quality.parquet"
	qualityFindingsName = "quality.json"
)

func init() {
	jobKinds["quality"] = jobKind{
		about: "metrics of each episode, into DST/" + qualityName + " and DST/" + qualityFindingsName,
		plan:  planQuality,
		run:   runQuality,
		merge: mergeQuality,
	}
}

// planQuality plans the measurement of episodes. The plan holds the scale of the dataset, which all
// shards share.
func planQuality(ctx context.Context, m *Manifest, src robocache.Dataset) (*plannedWork, error) {
	if err := quality.Frames(m.Job.Frames).Check(); err != nil {
		return nil, err
	}
	work, err := planInspection(ctx, m, src)
	if err != nil {
		return nil, err
	}
	scale, err := quality.ScaleOf(ctx, src)
	if err != nil {
		return nil, err
	}
	m.Schema, err = json.Marshal(scale)
	return work, err
}

// runQuality measures the episodes of a shard. An episode that cannot be read is a row without
// values.
func runQuality(ctx context.Context, a *attempt, src robocache.Dataset, r *Receipt) error {
	var scale quality.Scale
	if err := json.Unmarshal(a.manifest.Schema, &scale); err != nil {
		return robocache.Malformed("run", nil, "the manifest has no scale of the dataset").
			WithCause(err)
	}
	episodes, err := a.episodePositions(src)
	if err != nil {
		return err
	}
	table, err := quality.Measure(ctx, src, quality.Options{
		Episodes: episodes, Frames: quality.Frames(a.manifest.Job.Frames),
		Threads: a.options.Threads, Progress: a.recordProgress, Scale: &scale, IsShard: true,
	})
	if err != nil {
		return err
	}
	out, err := a.dst.Create(ctx, a.dir+"/"+qualityName)
	if err != nil {
		return err
	}
	defer out.Abort()
	if err := table.EncodeParquet(out); err != nil {
		return err
	}
	if err := out.Commit(); err != nil {
		return err
	}
	r.Report.Episodes = table.Len()
	for _, e := range episodes {
		r.Report.Frames += int64(src.Len(e))
	}
	return nil
}

// mergeQuality writes the table of all shards, and the findings.
func mergeQuality(
	ctx context.Context, m *Manifest, dst store.Writable, receipts []*Receipt,
) error {
	parts := make([]*quality.Table, len(receipts))
	for i, r := range receipts {
		var err error
		name := attemptDir(r.Shard, r.Attempt) + "/" + qualityName
		if parts[i], err = quality.Read(ctx, dst, name); err != nil {
			return err
		}
	}
	table, err := quality.Merge(parts)
	if err != nil {
		return err
	}
	var encoded bytes.Buffer
	if err := table.EncodeParquet(&encoded); err != nil {
		return err
	}
	if err := store.Put(ctx, dst, qualityName, encoded.Bytes()); err != nil {
		return err
	}
	found := mergeFindings(m.allFindings(receipts), table.Findings())
	return writeFindings(ctx, m, dst, qualityFindingsName, found)
}
