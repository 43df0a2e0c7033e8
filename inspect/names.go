package inspect

import "github.com/goatnote-inc/robocache"

// ChannelNames names the elements of a row of a numeric stream: as the dataset does, else by their place in the shape.
func ChannelNames(f *robocache.Feature) []string { return channelNames(f) }
