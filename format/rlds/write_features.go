package rlds

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/origin"
	"github.com/goatnote-inc/robocache/internal/guard"
)

// outLeaf is one feature to write.
type outLeaf struct {
	feature *robocache.Feature // nil if it is not a stream of the source
	key     string
	name    string // name in the record
	step    bool
	how     outKind
	format  string // format of images: "png" or "jpeg"
	mask    string // key of the stream whose rows it marks as valid
}

type outKind uint8

const (
	outNumbers outKind = iota // numbers in a list
	// One byte string per row, for values that a list cannot hold exactly (float64) or only
	// inefficiently.
	outBytes
	outRagged // ragged_flat_values and ragged_row_lengths_0
	outOpen   // one byte string per row of varying length
	outImage
	outDepth // float32 image
	outText
	outMask
	outTask
	outTimestamp
	outFlag
	outIndex
	outOrigin
)

// maxListed is the largest number of integers per row that are written as a list, where each takes
// 1 to 10 bytes.
const maxListed = 64

// howOf returns how a feature is written, or why it cannot be.
func howOf(f *robocache.Feature) (outKind, string) {
	switch f.Kind {
	case robocache.KindText, robocache.KindEvent:
		return outText, ""
	case robocache.KindImage, robocache.KindVideo:
		if f.DType == robocache.Float32 && f.Kind == robocache.KindImage ||
			f.Kind == robocache.KindVideo && f.Depth != nil {
			return outDepth, ""
		}
		return outImage, ""
	case robocache.KindNumeric, robocache.KindPointCloud:
		switch {
		case f.DType.Size() == 0:
			return 0, "values of dtype " + f.DType.String()
		case f.Ragged() && f.DType == robocache.Float64:
			return outOpen, ""
		case f.Ragged():
			return outRagged, ""
		case f.DType == robocache.Float64,
			f.DType.Integer() && f.Elements() > maxListed && f.DType != robocache.Uint32:
			return outBytes, ""
		}
		return outNumbers, ""
	}
	return 0, "a stream of kind " + string(f.Kind)
}

const tfdsFeatures = "tensorflow_datasets.core.features."

// shapeOf returns a shape with fixed dimensions.
func shapeOf(dims ...int) (s shapeNode) {
	for _, d := range dims {
		s.Dimensions = append(s.Dimensions, number(d))
	}
	return s
}

// tensorOf returns the connector of a tensor.
func tensorOf(dtype, encoding string, dims ...int) *node {
	class := "tensor_feature.Tensor"
	// a scalar as a byte string is a tensor of shape ()
	if len(dims) == 0 && encoding == "none" {
		class = "scalar.Scalar"
	}
	return &node{
		Class:  tfdsFeatures + class,
		Tensor: &valueNode{Shape: shapeOf(dims...), DType: dtype, Encoding: encoding},
	}
}

// node returns the leaf's entry in features.json.
func (l *outLeaf) node() *node {
	f := l.feature
	var dims []int
	if f != nil {
		dims = append(dims, f.Shape...)
		if f.Ragged() {
			dims = dims[1:]
		} else if f.Scalar() {
			dims = nil
		}
	}
	switch l.how {
	case outNumbers:
		return tensorOf(f.DType.String(), "none", dims...)
	case outBytes:
		return tensorOf(f.DType.String(), "bytes", dims...)
	case outOpen:
		return tensorOf(f.DType.String(), "bytes", append([]int{-1}, dims...)...)
	case outRagged:
		return &node{
			Class:    tfdsFeatures + "sequence_feature.Sequence",
			Sequence: &sequenceNode{tensorOf(f.DType.String(), "none", dims...), -1},
		}
	case outImage, outDepth:
		dtype, channels := "uint8", 3
		if f.Kind == robocache.KindImage {
			if f.Channels == 1 || f.Channels == 4 && l.format != "jpeg" {
				channels = f.Channels
			}
			if f.DType == robocache.Uint16 {
				dtype = "uint16"
			}
		}
		if l.how == outDepth {
			dtype, channels = "float32", 1
		}
		h, w := f.Height, f.Width
		if h == 0 || w == 0 {
			h, w = -1, -1
		}
		return &node{
			Class: tfdsFeatures + "image_feature.Image",
			Image: &valueNode{
				Shape:          shapeOf(h, w, channels),
				DType:          dtype,
				EncodingFormat: l.format,
			},
		}
	case outText, outTask, outOrigin:
		return &node{Class: tfdsFeatures + "text_feature.Text", Text: &textNode{}}
	case outMask, outFlag:
		return tensorOf("bool", "none")
	}
	return tensorOf("int64", "none") // timestamps and episode numbers
}

// dictOf returns an empty dict of features.
func dictOf() *node {
	return &node{
		Class:        tfdsFeatures + "features_dict.FeaturesDict",
		FeaturesDict: &dictNode{map[string]*node{}},
	}
}

// featuresJSON returns features.json. It uses only standard classes, so that TFDS opens the dataset
// without code.
func featuresJSON(leaves []outLeaf) []byte {
	steps, episode := dictOf(), dictOf()
	for i := range leaves {
		l := &leaves[i]
		into, name := episode.FeaturesDict.Features, l.name
		if l.step {
			into, name = steps.FeaturesDict.Features, strings.TrimPrefix(name, stepsName+"/")
		}
		parts := strings.Split(name, "/")
		last := len(parts) - 1
		for _, p := range parts[:last] {
			if into[p] == nil || into[p].FeaturesDict == nil {
				into[p] = dictOf()
			}
			into = into[p].FeaturesDict.Features
		}
		into[parts[last]] = l.node()
	}
	episode.FeaturesDict.Features[stepsName] = &node{
		Class:    tfdsFeatures + "dataset_feature.Dataset",
		Sequence: &sequenceNode{steps, -1},
	}
	return guard.Must(json.MarshalIndent(episode, "", "    "))
}

// recordName returns the path of a key in the record: "observation.images.top" is
// steps/observation/images/top. If a prefix of the key is also a key, the rest after it is not
// split.
func recordName(key string, all []string) string {
	parts := strings.Split(strings.ReplaceAll(key, "/", "_"), ".")
	for n := 1; n < len(parts); n++ {
		if slices.Contains(all, strings.Join(parts[:n], ".")) {
			return strings.Join(append(parts[:n-1:n-1], strings.Join(parts[n-1:], ".")), "/")
		}
	}
	if slices.Contains(parts, "") {
		return strings.Join(parts, ".")
	}
	return strings.Join(parts, "/")
}

// canHold reports whether a record can hold a stream, whatever its clock.
func canHold(f *robocache.Feature) bool {
	_, why := howOf(f)
	return why == ""
}

// planLeaves chooses the written features and their names.
func (w *writing) planLeaves(ctx context.Context) {
	w.timeless = !robocache.KeepsTime(ctx, w.src)
	var picked []*robocache.Feature
	have := map[string]bool{}
	all := []string{"language_instruction"}
	drop := func(f *robocache.Feature, why string) {
		w.report.Dropped = append(w.report.Dropped, f.Key)
		w.addFinding(robocache.SeverityWarning, "dropped-feature", f.Key, why+" is not written")
	}
	for i := range w.info.Features {
		f := &w.info.Features[i]
		meta := strings.HasPrefix(f.Key, "episode_metadata.")
		if f.Key == sourceKey || w.options.Keys != nil && !slices.Contains(w.options.Keys, f.Key) ||
			w.options.Keys == nil && f.Default && !meta {
			continue
		}
		if f.Clock != "" && f.Clock != w.info.Clock {
			drop(
				f,
				"a stream on another clock (RLDS has one row per step; align the dataset first)",
			)
			continue
		}
		if _, why := howOf(f); why != "" {
			drop(f, why)
			continue
		}
		picked = append(picked, f)
		all = append(all, f.Key)
		have[f.Key] = true
	}
	for _, k := range w.options.Keys {
		if !have[k] && !slices.Contains(w.report.Dropped, k) {
			guard.Fail(robocache.NotFound(
				"write rlds",
				robocache.Where{"stream": k},
				"no stream of this name",
			))
		}
	}
	names := map[string]bool{}
	add := func(l outLeaf) {
		l.name = recordName(l.key, all)
		if l.step {
			l.name = stepsName + "/" + l.name
		}
		if names[l.name] {
			guard.Fail(robocache.Malformed(
				"write rlds",
				robocache.Where{"stream": l.key},
				"two streams would be %s",
				quoteClipped(l.name),
			))
		}
		names[l.name] = true
		w.leaves = append(w.leaves, l)
	}
	for _, f := range picked {
		how, _ := howOf(f)
		meta := strings.HasPrefix(f.Key, "episode_metadata.") && f.Default &&
			(how == outText || how == outNumbers || how == outBytes)
		add(outLeaf{feature: f, key: f.Key, step: !meta, how: how})
		if f.Masked && !meta {
			add(outLeaf{key: f.Key + "_valid", step: true, how: outMask, mask: f.Key})
			w.addFinding(
				robocache.SeverityInfo,
				"mask-beside",
				f.Key,
				"rows without a value are marked in "+f.Key+"_valid: RLDS has no masks",
			)
		}
	}
	for _, k := range []string{"is_first", "is_last", "is_terminal"} {
		if !have[k] {
			add(outLeaf{key: k, step: true, how: outFlag})
		}
	}
	if !have["language_instruction"] {
		add(outLeaf{key: "language_instruction", step: true, how: outTask})
	}
	if !w.timeless {
		w.timestampKey = "timestamp_ns"
		for have[w.timestampKey] {
			w.timestampKey = "recorded_" + w.timestampKey
		}
		add(outLeaf{key: w.timestampKey, step: true, how: outTimestamp})
	}
	if !have["episode_metadata.episode_index"] {
		add(outLeaf{key: "episode_metadata.episode_index", how: outIndex})
	}
	w.origins = origin.NewTracer(w.src, w.options)
	if guard.Must(w.origins.Any(ctx)) {
		add(outLeaf{key: sourceKey, how: outOrigin})
	}
}
