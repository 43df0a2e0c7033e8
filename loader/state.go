package loader

// State is where a Loader stands: small, readable, and enough to go on exactly (L5). It counts samples that were handed out.
type State struct {
	Version     int          `json:"version"` // 1
	Order       string       `json:"order"`   // "global" or "file"
	Seed        int64        `json:"seed"`
	Epoch       int64        `json:"epoch"`
	Position    int64        `json:"position"` // samples of the epoch that all ranks have had
	Samples     int64        `json:"samples"`  // of the epoch
	BatchSize   int          `json:"batch_size"`
	WorldSize   int          `json:"world_size"`
	Rank        int          `json:"rank"`
	Ahead       int64        `json:"ahead,omitempty"` // samples that this rank took beyond Position, in place of bad ones
	Fingerprint Fingerprint  `json:"fingerprint"`
	BadEpisodes []BadEpisode `json:"bad_episodes,omitempty"`
}

// Fingerprint tells one set of episodes from another; it does not depend on where they lie.
type Fingerprint struct {
	Format   string `json:"format"`
	Episodes int    `json:"episodes"`
	Samples  int64  `json:"samples"`
	Lengths  string `json:"lengths"` // hash over the selected episodes' numbers and samples
}

// BadEpisode is an episode that was found bad while reading. Its samples are left out of the order from the position on where it was found.
type BadEpisode struct {
	Episode  int    `json:"episode"` // position in the dataset
	Epoch    int64  `json:"epoch"`
	Position int64  `json:"position"`
	Error    string `json:"error"`
}
