package rlds

import (
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
)

// Lacks reports whether an episode's record lacks the key of a stream. In remote shards only the
// keys of the first record are known. For other records it returns false, and reading the rows
// returns the error.
func (d *Dataset) Lacks(episode int, key string) bool {
	s, ok := d.byKey[key]
	if !ok || op.Episode(d.About.Episodes, episode) != nil {
		return false
	}
	lacks, known := d.lacksLeaf(episode, s.leaf)
	return known && lacks
}

// lacksLeaf reports whether an episode's record lacks the key of a leaf. known is false if the keys
// of the record were not read.
func (d *Dataset) lacksLeaf(episode, leaf int) (lacks, known bool) {
	s, r := d.locateEpisode(episode)
	x := d.index[s]
	if x.keys[r] < 0 {
		return false, false
	}
	keys := x.keySets[x.keys[r]]
	return d.schema.leaves[leaf].lacks(
		int(x.steps[r]),
		func(slot int) bool { return keys[slot] != 0 },
	), true
}

// absentFromAll reports whether no examined record has the key of a leaf. Such a leaf is not a
// stream, and a finding names it.
func (d *Dataset) absentFromAll(leaf int) bool {
	lacking := 0
	for e := range d.About.Episodes {
		lacks, known := d.lacksLeaf(e, leaf)
		if known && !lacks && d.Len(e) > 0 {
			return false
		}
		if lacks {
			lacking++
		}
	}
	if lacking == 0 {
		return false
	}
	l := &d.schema.leaves[leaf]
	d.addFinding(robocache.Finding{
		Severity: robocache.SeverityWarning,
		Code:     "key-absent",
		Where:    robocache.Where{"file": featuresName, "stream": l.key},
		Message: fmt.Sprintf(
			"%s declares %q, but no record has it: it is not a stream",
			featuresName,
			l.name,
		),
		Hint: "The other streams can be read. To remove this finding, remove the key " +
			"from " + featuresName,
		NotDelivered: l.key,
		Count:        int64(lacking),
	})
	return true
}

// reportLacking adds a finding for each stream that an episode lacks, and marks the streams.
func (d *Dataset) reportLacking() {
	var suspects []*robocache.Feature
	for i := range d.About.Features {
		if f := &d.About.Features[i]; d.mayLack(d.byKey[f.Key].leaf) {
			suspects = append(suspects, f)
		}
	}
	if suspects == nil {
		return
	}
	var lacking reader.LackingFindings
	for e := range d.About.Episodes {
		for _, f := range suspects {
			if !d.Lacks(e, f.Key) {
				continue
			}
			f.OnlyAsked = true
			lacking.Add(f, d.lackingWhere(e, f.Key), d.schema.leaves[d.byKey[f.Key].leaf].name)
		}
	}
	d.About.Findings = append(d.About.Findings, lacking.List()...)
}

// mayLack reports whether some set of keys lacks that of a leaf.
func (d *Dataset) mayLack(leaf int) bool {
	for _, x := range d.index {
		if x != nil && slices.ContainsFunc(x.keySets, func(keys string) bool {
			return d.schema.leaves[leaf].lacks(1, func(slot int) bool { return keys[slot] != 0 })
		}) {
			return true
		}
	}
	return false
}

// lackingWhere returns the location of a stream that an episode lacks.
func (d *Dataset) lackingWhere(episode int, key string) robocache.Where {
	s, _ := d.locateEpisode(episode)
	return robocache.Where{
		"episode": d.About.EpisodeIndex(episode),
		"file":    d.shards[s].name,
		"stream":  key,
	}
}
