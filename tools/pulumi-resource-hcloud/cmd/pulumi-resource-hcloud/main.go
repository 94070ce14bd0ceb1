// Command pulumi-resource-hcloud serves the provider to Pulumi's engine.
package main

import (
	"context"

	provider "fleet.invalid/tools/pulumi-resource-hcloud"

	pftfbridge "github.com/pulumi/pulumi-terraform-bridge/v3/pkg/pf/tfbridge"
)

func main() {
	ctx := context.Background()
	pftfbridge.MainWithMuxer(ctx, provider.Name, provider.Info(ctx), provider.Schema)
}
